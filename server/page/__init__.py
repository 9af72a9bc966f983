"""The page of the server."""
