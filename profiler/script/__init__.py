"""The harness's plan, written from what a block measures, and its records, read back."""
