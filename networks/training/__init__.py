"""Networks and the training steps derived from them.

A model describes its forward pass with :class:`~networks.training.network.Network`;
:func:`~networks.training.derive.training_step` turns it into the operations of one training step.
"""

from networks.kinds import Optimizer
from networks.training.derive import training_step
from networks.training.home import with_parameters_in_storage
from networks.training.network import Network, NetworkError, Value
from networks.training.step import StepOp, StepTensor, TrainingStep

__all__ = [
    "Network",
    "NetworkError",
    "Optimizer",
    "StepOp",
    "StepTensor",
    "TrainingStep",
    "Value",
    "training_step",
    "with_parameters_in_storage",
]
