"""Tensors in parts of some of their channels or features, and the operations on these.

:func:`~networks.training.channels.rewriting.in_layouts` rewrites a training step.
"""
