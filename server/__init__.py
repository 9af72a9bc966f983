"""The solver behind HTTP: a page for people, JSON for scripts, each search in its own process."""
