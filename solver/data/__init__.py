"""What a training step is given: samples that the project generates, or those of a user's file."""

from solver.data.batches import Batches
from solver.data.generated import generated_batches
from solver.data.inputs import DataError
from solver.data.loaded import load_batches

__all__ = ["Batches", "DataError", "generated_batches", "load_batches"]
