"""Activations in parts of some of their channels or features, and weights in blocks.

:func:`~networks.training.channels.rewriting.cut_channels` rewrites a training step.
"""
