"""Networks from files that ``torch.export.save`` wrote; PyTorch itself is not needed."""

from networks.exported.network import read_network
from networks.exported.source import exported

__all__ = ["exported", "read_network"]
