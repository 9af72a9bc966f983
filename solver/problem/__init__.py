"""The scheduling problem by index, and the formats ``costed-graph/1`` and ``schedule/2``."""
