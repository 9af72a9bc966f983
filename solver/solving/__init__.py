"""Choice and order of the search methods, and the resulting schedule."""
