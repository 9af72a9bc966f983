"""Networks from files that ``torch.export.save`` wrote; PyTorch itself is not needed."""

from networks.exported.network import read_network

__all__ = ["read_network"]
