"""A cost model of a board for any network: a designed sweep of shapes (``profile --general``).

The first round has a small operation of every sort: every kind, and every kernel of a kind.
The cost model is fitted to what was measured so far, random shapes from the ranges that networks
use are predicted, and the next round measures those of which it is least sure. At most half of a
round goes to families that most networks consist of first: to the sorts of which the fewest
operations were measured, until these are enough.
Shapes that take long are left out, since many short operations say more in the same time.

Every round is a run of its own in a directory of the sweep. A round is drawn from the seed and from
the rounds before, so that an interrupted sweep goes on where it stopped. All rounds are measured
with the kernels of the first profile, and with its choice of matrix products: costs of different
kernels are never mixed.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from devices.claims.claim import sole_user
from devices.description import DeviceDescription
from devices.errors import MeasurementInvalid, RequestRefused
from devices.operation import SIGNATURES, OperationError, OpSpec
from devices.plan import ExecutionPlan
from devices.profile import BoardIdentity, Build, DeviceProfile, EnergySource, GeneralSweep
from devices.signatures.ranges import draw_attributes
from profiler.run.options import ProfileOptions
from profiler.run.preview import operation_s
from profiler.run.run import OnProgress, ProgressEvent, profile_device
from profiler.run.trials import RunDirectory, next_run_directory
from replay.costs.refine import measured_build, require_same_board_and_kernels
from solver.costing.model import CostModel
from solver.costing.terms import sort

BLOCKS = 2
"""Blocks of a round: most of an operation's doubt is in the model, not in its measurement."""

_FIRST = 1
"""Operations of every sort in the first round, after which the board's pace is known."""

_CANDIDATES = 10
"""Operations of every sort that are predicted before a round."""

_OF_A_SORT = 5
"""Most operations of one sort in a later round."""

_COMMON = frozenset(
    (
        *("conv2d", "linear", "batch_norm", "layer_norm", "relu", "gelu", "add", "dropout"),
        *("attention_scores", "attention_context", "softmax", "embedding", "max_pool2d"),
        *("global_average_pool", "softmax_cross_entropy", "mean_squared_error", "gradient", "sgd"),
    )
)
"""Families that most networks consist of."""

_ENOUGH = 40
"""Operations of one sort of a common family up to which they are measured even if the model is
sure. From a few, a law may be sure and wrong."""

_OF_A_ROUND = 250
"""Most operations of a later round: after it, the model is sure of other ones."""

_SURE = 0.05
"""Half width of an interval below which an operation need not be measured."""

ROUNDS = 6
"""Rounds among which the time is divided."""

_FEWEST_DRAWS, _DRAWS = 30, 60
"""Fewest draws of a kind, which find all of its sorts; most draws of each operation, until one is
small enough."""

_SMALL_BYTES = 64 << 10
_LARGE_BYTES = 32 << 20
_SHARE_OF_MEMORY = 0.5

_LONG, _SHORT_S = 2e-3, 0.5
"""Share of the sweep's time that one operation may take; seconds that any may take."""


@dataclass(frozen=True)
class Sweep:
    """A sweep of a board: options of each round, the directory of all rounds, and the time."""

    description: DeviceDescription
    options: ProfileOptions
    directory: Path
    limit_s: float

    @classmethod
    def chosen(
        cls,
        places: Sequence[Path],
        description: DeviceDescription,
        specs: Sequence[OpSpec],
        step: ExecutionPlan | None,
        options: ProfileOptions,
        limit_s: float,
    ) -> Sweep:
        """Choose the directory: that of an interrupted sweep with the same arguments, or a new one.

        Args:
            places: Directories that hold runs; a new one is made in the first.
            description: The board.
            specs: Operations of networks that are measured beside the sweep.
            step: Whole training step that is measured beside the sweep; None for none.
            options: How to measure these; rounds have fewer blocks and no storage.
            limit_s: Seconds of measuring of all rounds.
        """
        question = [
            "general",
            description.model_dump_json(),
            *(spec.key for spec in specs),
            "" if step is None else step.name,
            f"{options} {limit_s}",
        ]
        directory = next_run_directory(places, description.name, "\n".join(question))
        (directory / "networks").mkdir(exist_ok=True)
        # One shape that is too large, or that no meter's range holds, must not end the sweep.
        of_rounds = replace(
            options, blocks=BLOCKS, storage=False, leave_out=True, leave_out_void=True
        )
        return cls(description, of_rounds, directory, limit_s)

    @property
    def networks(self) -> Path:
        """Directory of the trials of networks that are measured beside the sweep."""
        return self.directory / "networks"

    def finish(self, profile: DeviceProfile) -> None:
        """Save the profile; the next call with the same arguments begins another sweep."""
        RunDirectory(self.directory).finish(profile)

    def measure(
        self,
        first: DeviceProfile,
        on_progress: OnProgress,
        between: Callable[[float], None] = lambda _share: None,
    ) -> DeviceProfile:
        """Measure rounds until the time is over.

        Args:
            first: A profile of the board, whose operations are counted too.
            on_progress: Called with every progress event.
            between: Called after each round that ends before the time does, with the share of the
                time that has passed; also after rounds that an earlier call has measured.

        Returns:
            ``first`` with the operations of all rounds.

        Raises:
            RequestRefused: The board, its meter or its kernels are not those of ``first``, or a
                round was measured with others.
            JoulewrightError: As for :func:`~profiler.run.run.profile_device`.
        """
        with sole_user(self.directory):
            profile, measured_s, guessed_s, number = first, 0.0, 0.0, 0
            while number == 0 or measured_s * (1.0 + 0.5 / number) < self.limit_s:
                pace = measured_s / guessed_s if guessed_s else 1.0
                left_s = (self.limit_s - measured_s) / max(1, ROUNDS - number)
                specs = self._chosen(number, profile, left_s / pace)
                if not specs:
                    break
                directory = self.directory / f"round-{number:02d}"
                directory.mkdir(exist_ok=True)
                found = self._round(directory, specs, first, measured_s, on_progress)
                profile = _merged(profile, found, f"Shapes of {directory.name}: ")
                measured_s += _measured_s(directory)
                guessed_s += sum(map(self._guess_s, specs))
                number += 1
                if measured_s < self.limit_s:
                    between(measured_s / self.limit_s)
        if number == 0:
            raise MeasurementInvalid(
                f"{self.description.name}: no shape of any kind fits into the board's memory"
            )
        sweep = GeneralSweep(
            operations=len(profile.operations) - len(first.operations),
            rounds=number,
            limit_s=self.limit_s,
            measured_s=measured_s,
            seed=self.options.seed,
        )
        return profile.changed(general=sweep)

    def _round(
        self,
        directory: Path,
        specs: Sequence[OpSpec],
        first: DeviceProfile,
        before_s: float,
        on_progress: OnProgress,
    ) -> DeviceProfile:
        def require_same(
            board: BoardIdentity, build: Build, energy_source: EnergySource | None
        ) -> None:
            try:
                require_same_board_and_kernels(first, board, build, energy_source)
            except RequestRefused as refusal:
                raise RequestRefused(
                    f"{directory}: cannot be a round of this sweep: {refusal.args[0]}",
                    remedy=f"remove {self.directory} and profile the board again",
                ) from None

        finished = RunDirectory(directory).profile()
        if finished is not None:
            require_same(finished.board, measured_build(finished), finished.energy_source)
            return finished
        began_s = time.monotonic()

        def show(event: ProgressEvent) -> None:
            passed_s = min(self.limit_s, before_s + time.monotonic() - began_s)
            left_s = max(event.left_s or 0.0, self.limit_s - passed_s)
            activity = f"{directory.name}, {len(specs)} shapes: {event.activity}"
            on_progress(ProgressEvent(activity, passed_s / self.limit_s, left_s))

        description = self.description.with_matmul(measured_build(first).matmul)
        return profile_device(
            description, specs, None, self.options, directory, show, require_board=require_same
        )

    def _chosen(self, number: int, profile: DeviceProfile, time_s: float) -> list[OpSpec]:
        """Operations of a round: some of every sort, then those of which the model is least sure.

        ``time_s`` is the time of a later round, in seconds of :meth:`_guess_s`.
        """
        random_ = random.Random(f"{self.options.seed} {number}")  # noqa: S311
        known = set(profile.by_spec)
        if number == 0:
            return _drawn(random_, _FIRST, self._small_enough(_SMALL_BYTES, profile), known)
        model = CostModel(profile)
        candidates = _drawn(random_, _CANDIDATES, self._small_enough(_LARGE_BYTES, profile), known)
        doubts = {spec: model.doubt(spec) for spec in candidates}
        unsure = sorted(candidates, key=doubts.__getitem__, reverse=True)
        common = [spec for spec in unsure if spec.family in _COMMON]
        half = self._first_of(_rarest_first(common, known), _OF_A_ROUND // 2, time_s / 2)
        time_s -= math.fsum(map(self._guess_s, half))
        taken = set(half)
        rest = [s for s in unsure if doubts[s] >= _SURE and s not in taken]
        return half + self._first_of(rest, _OF_A_ROUND - len(half), time_s)

    def _first_of(self, specs: Sequence[OpSpec], count: int, time_s: float) -> list[OpSpec]:
        """The first operations, at most so many, in this time altogether; a few of each sort."""
        chosen: list[OpSpec] = []
        of_sort: Counter[str] = Counter()
        for spec in specs:
            if len(chosen) == count:
                break
            if of_sort[sort(spec)] == _OF_A_SORT:
                continue
            time_s -= self._guess_s(spec)
            if time_s < 0:
                break
            of_sort[sort(spec)] += 1
            chosen.append(spec)
        return chosen

    def _small_enough(self, limit_bytes: int, profile: DeviceProfile) -> Callable[[OpSpec], bool]:
        memory_bytes = int(_SHARE_OF_MEMORY * profile.board.usable_bytes)

        def accepts(spec: OpSpec) -> bool:
            if spec.moved_bytes > min(limit_bytes, memory_bytes):
                return False
            return self._guess_s(spec) < max(_SHORT_S, _LONG * self.limit_s)

        return accepts

    def _guess_s(self, spec: OpSpec) -> float:
        return operation_s(spec, self.description, self.options)


def _drawn(
    random_: random.Random, count: int, accepts: Callable[[OpSpec], bool], known: set[OpSpec]
) -> list[OpSpec]:
    """Draw ``count`` acceptable operations of every sort that are not known; fewer if few exist."""
    found: dict[str, dict[OpSpec, None]] = {}
    for kind in SIGNATURES:
        of_kind: dict[str, dict[OpSpec, None]] = {}
        for draw in range(_DRAWS * count):
            if draw > _FEWEST_DRAWS and all(len(own) == count for own in of_kind.values()):
                break
            try:
                spec = OpSpec.of(kind, **draw_attributes(kind, random_)).costed_as
            except OperationError:
                continue
            own = of_kind.setdefault(sort(spec), {})
            if len(own) < count and spec not in known and accepts(spec):
                own[spec] = None
        found |= of_kind
    return [spec for own in found.values() for spec in own]


def _rarest_first(specs: Sequence[OpSpec], known: Iterable[OpSpec]) -> list[OpSpec]:
    """The operations in such an order that each is of the sort of which the fewest are known.

    Those before it count as known; a sort with enough of them is left out.
    """
    there_are = Counter(map(sort, known))
    ranked = []
    for spec in specs:
        ranked.append((there_are[sort(spec)], spec))
        there_are[sort(spec)] += 1
    ranked.sort(key=lambda each: each[0])
    return [spec for before, spec in ranked if before < _ENOUGH]


def _merged(profile: DeviceProfile, other: DeviceProfile, whose: str) -> DeviceProfile:
    """The profile with the operations of another, and with what only its notes say of them."""
    known = profile.by_spec
    new = (operation for spec, operation in other.by_spec.items() if spec not in known)
    notes = (whose + note for note in other.notes if note not in profile.notes)
    return profile.changed(operations=(*profile.operations, *new), notes=(*profile.notes, *notes))


def _measured_s(directory: Path) -> float:
    return sum(run.header.duration_s for run in RunDirectory(directory).harness_runs())
