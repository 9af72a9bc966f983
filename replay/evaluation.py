"""Evaluation of a network on samples that it was not trained on, with the kernels of this computer.

The forward pass alone needs neither a schedule nor the board: it runs here with every tensor at an
address of its own. Its kernels are those of the board's sources, so that losses agree but for the
rounding of another processor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from devices.errors import InputError, RequestRefused
from devices.replay import HeldOutScores, Score
from networks.training.evaluation import Evaluation, evaluation_of

if TYPE_CHECKING:
    from devices.operation import OpSpec
    from devices.plan import ExecutionPlan
    from networks.data import Batches
    from networks.training import TrainingStep
    from replay.running.session import Progress


@dataclass(frozen=True)
class HeldOutSamples:
    """Samples to evaluate a network on.

    Attributes:
        path: the samples' file.
        evaluation: the forward pass.
        batches: whole batches of the samples.
        left_out: number of samples that do not fill a batch.
    """

    path: Path
    evaluation: Evaluation
    batches: Batches
    left_out: int

    @classmethod
    def read(cls, path: Path, step: TrainingStep) -> HeldOutSamples:
        """Read the samples of a file.

        Args:
            path: the ``.npz`` file, with an array for each input.
            step: the training step, with parameters in RAM.

        Raises:
            InputError: the file does not fit the network, or does not fill one batch.
        """
        from networks.data import load_batches

        evaluation = evaluation_of(step)
        batches = load_batches(path, evaluation.step)
        if batches.sample_count < step.batch:
            raise InputError(
                f"{path}: contains {batches.sample_count} samples, and a batch of {step.name} has"
                f" {step.batch}",
                remedy="evaluate on at least one batch",
            )
        return cls(path, evaluation, *batches.whole)

    def score(self, values: Mapping[str, NDArray[Any]], progress: Progress) -> Score:
        """Compute the loss over all batches, and the accuracy of a classifier, on this computer.

        Args:
            values: parameters and running statistics, by tensor.
            progress: called with one line for each phase.

        Raises:
            RequestRefused: the forward pass does not fit into the RAM of this computer.
            JoulewrightError: the kernels cannot be built or run here.
        """
        from devices.description import load_description
        from replay.lowering.lowering import unscheduled
        from replay.running.opening import open_replay

        step, count = self.evaluation.step, self.batches.count
        batches = [self.batches.batch(index) for index in range(count)]

        def plans(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
            return [unscheduled(step, workspace_bytes)]

        here = load_description("local")
        with open_replay(here, step.distinct_specs, plans, progress, alone=False) as session:
            needed, free = session.plans[0].arena_bytes, session.facts.available_bytes
            if needed > free:
                raise RequestRefused(
                    f"evaluation on this computer takes {needed} bytes of RAM, {free} are free",
                    remedy="run without --evaluate",
                )
            progress(f"evaluating {count} batches on this computer")
            record = session.run(
                0, values, batches, steps=count, watched=False, expected_step_s=0.0
            )
        loss = self._mean_loss(record.losses, batches, values)
        labels = self.evaluation.labels
        accuracy = None
        if labels is not None:
            pairs = zip(record.predictions, batches, strict=True)
            counted = [_counted(p, batch[labels], self.evaluation.ignored) for p, batch in pairs]
            rows = sum(count for _, count in counted)
            accuracy = sum(right for right, _ in counted) / rows if rows else None
        return Score(loss=loss if math.isfinite(loss) else None, accuracy=accuracy)

    def _mean_loss(
        self,
        losses: Sequence[float],
        batches: Sequence[Mapping[str, NDArray[Any]]],
        values: Mapping[str, NDArray[Any]],
    ) -> float:
        """The loss of all batches as if they were one; NaN if no row counts."""
        labels, weights = self.evaluation.labels, self.evaluation.weights
        if labels is None or weights is None:
            return math.fsum(losses) / len(losses)
        of_class = values[weights].reshape(-1)
        counted = [
            _weight(of_class, batch[labels].reshape(-1), self.evaluation.ignored)
            for batch in batches
        ]
        parts = [loss * weight for loss, weight in zip(losses, counted, strict=True) if weight]
        return math.fsum(parts) / math.fsum(counted) if parts else math.nan

    def scores(self, before: Score, after: Score) -> HeldOutScores:
        """Join the scores before and after training, for the report."""
        return HeldOutScores(
            file=str(self.path),
            samples=self.batches.sample_count,
            left_out=self.left_out,
            before=before,
            after=after,
        )


def _weight(of_class: NDArray[Any], labels: NDArray[Any], ignored: int | None) -> float:
    """Weight of a batch's rows that count: that of their labels."""
    counts = (labels != ignored) & (labels >= 0) & (labels < len(of_class))
    return float(of_class[labels[counts].astype(np.int64)].sum(dtype=np.float64))


def _counted(
    logits: NDArray[np.float32], labels: NDArray[Any], ignored: int | None
) -> tuple[int, int]:
    """Number of rows whose largest logit is that of their label, and of those that count."""
    largest = logits.reshape(labels.size, -1).argmax(axis=1)
    counts = labels.reshape(-1) != ignored
    return int(np.sum((largest == labels.reshape(-1)) & counts)), int(np.sum(counts))
