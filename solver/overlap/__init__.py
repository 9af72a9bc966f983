"""Overlap of transfers with ops, for storage with DMA."""
