"""Record a network that PyTorch exported in training mode, and what ``module.eval()`` makes of it.

Run it to write the network again: ``.venv/bin/python -m tests.references.record_evaluations``.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.references.record_exported_networks import FOLDER, save

SAMPLES, BATCH = 10, 4


class Dropping(nn.Module):
    """Dropout and two batch norms, of which one is frozen; the loss is that of a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6)
        self.frozen, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.5)
        self.out = nn.Linear(36, 3)

    def logits(self, wave: Tensor) -> Tensor:
        x = self.drop(torch.relu(self.frozen(self.norm(self.conv(wave)))))
        predictions: Tensor = self.out(x.flatten(1))
        return predictions

    def forward(self, wave: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.logits(wave), labels)


def record() -> None:
    """Write the network, samples, and the loss and accuracy on all whole batches of them."""
    torch.manual_seed(3)
    wave, labels = torch.randn(SAMPLES, 2, 8), torch.randint(0, 3, (SAMPLES,))
    module = Dropping().train()
    for _ in range(5):  # running statistics that are neither those of a batch nor the initial ones
        module(3.0 * torch.randn(BATCH, 2, 8) + 1.0, labels[:BATCH])
    module.frozen.eval()
    inputs = (wave[:BATCH], labels[:BATCH])
    save(torch.export.export(module, inputs, strict=False), FOLDER / "dropping.pt2")
    module.eval()
    used = SAMPLES // BATCH * BATCH
    with torch.no_grad():
        logits = module.logits(wave[:used])
        loss = functional.cross_entropy(logits, labels[:used])
    right = (logits.argmax(1) == labels[:used]).double().mean()
    arrays = {"input.wave": wave.numpy(), "input.labels": labels.numpy()}
    np.savez(FOLDER / "dropping.npz", loss=loss.numpy(), accuracy=right.numpy(), **arrays)


if __name__ == "__main__":
    record()
