"""Networks and the training steps that follow from them.

A model describes its forward pass with :class:`~solver.training.network.Network`;
:func:`~solver.training.derive.training_step` turns it into the operations of one training step.
"""

from solver.graph import Optimizer
from solver.training.derive import training_step
from solver.training.home import with_parameters_in_storage
from solver.training.network import Network, NetworkError, Value
from solver.training.step import StepOp, StepTensor, TrainingStep

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
