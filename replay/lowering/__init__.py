"""A verified schedule becomes an execution plan."""
