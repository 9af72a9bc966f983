"""What a training step is given: samples that the project generates, or those of a user's file."""

from networks.data.batches import Batches
from networks.data.generated import generated_batches
from networks.data.inputs import DataError
from networks.data.loaded import load_batches

__all__ = ["Batches", "DataError", "generated_batches", "load_batches"]
