"""Input data of training steps: generated samples, or samples from a user's file."""

from networks.data.batches import Batches
from networks.data.generated import generated_batches
from networks.data.inputs import DataError
from networks.data.loaded import load_batches

__all__ = ["Batches", "DataError", "generated_batches", "load_batches"]
