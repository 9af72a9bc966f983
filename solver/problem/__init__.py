"""The scheduling problem, and the file formats ``costed-graph/1`` and ``schedule/2``."""
