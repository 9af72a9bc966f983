"""Otii Arc and Ace, through their server."""
