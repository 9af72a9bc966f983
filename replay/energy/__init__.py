"""Energy of single operations, and of short steps, from many steps of a replay together."""
