"""Measure a profile block by block, evaluate the trials and assemble the result."""
