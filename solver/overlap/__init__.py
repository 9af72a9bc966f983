"""Transfers beside ops, where storage has DMA."""
