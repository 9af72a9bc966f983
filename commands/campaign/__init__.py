"""Command ``campaign``: run many measurements from one file, and compare them."""
