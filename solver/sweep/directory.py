"""The directory of a sweep, from which an interrupted sweep resumes.

It holds every finished point as a schedule with its graph, and a record and tables of all points::

    sweep.json, sweep.csv, sweep.parquet       the same points, each
    schedules/GRAPH-RAM-DEADLINE.json          and .graph.json
    baselines/GRAPH-RAM-DEADLINE-NAME.json     of the same graph
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devices.documents.document import dump_json, read_json, write_atomically
from devices.errors import InputError
from solver.baselines.baseline import baseline_limit_s
from solver.constructed import keep_everything
from solver.files.solved import file_stem, require_true_figures, write_solved
from solver.options import Coverage, SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Budget, PageIn, PageOut, Schedule
from solver.referee.referee import Replay, replay, verify
from solver.solving.shared_ram import SharedRam
from solver.sweep.frontier import Offer
from solver.sweep.record import SOLVED, SweepRecord, SweepRow
from solver.sweep.sweep import BaselineRun, PointSolved, Study


@dataclass(frozen=True)
class SweepSubject:
    """A costed graph of a sweep, and its origin.

    ``ram`` is that of a board on which schedules share it with records of the firmware.
    """

    graph: CostedGraph
    covers: Coverage
    profile: str | None = None
    model: str | None = None
    ram: SharedRam | None = None

    @property
    def stem(self) -> str:
        """Stem of its file names."""
        name = file_stem(self.graph.name)
        return name if self.covers == "all" else f"{name}-{self.covers}"


def require_distinct_stems(subjects: Iterable[SweepSubject]) -> None:
    """Check that no two subjects have the same file names.

    Raises:
        InputError: Two subjects have the same stem.
    """
    for stem, count in Counter(subject.stem for subject in subjects).items():
        if count > 1:
            raise InputError(
                f"{count} of the graphs have the same file name {stem!r}", remedy="rename them"
            )


class SweepDirectory:
    """The directory of a sweep.

    The constructor raises ``DocumentError`` if a record exists and cannot be read. Methods raise
    :class:`OSError` if a file cannot be written; the previous file is then unchanged.
    """

    def __init__(self, path: Path, options: SolverOptions) -> None:
        self.path = path
        self._options = options
        self._subjects: dict[str, _Costs] = {}
        self._rows: dict[tuple[str, Budget, str], SweepRow] = {}
        record = path / "sweep.json"
        if record.exists():
            for row in read_json(record, SweepRecord).points:
                self._rows[_key(row)] = row

    def study(
        self,
        subject: SweepSubject,
        budgets: Sequence[Budget],
        baselines: Sequence[tuple[str, Budget]],
    ) -> Study:
        """Collect the points and baselines of a grid that remain to be solved.

        Rows of another graph with this name are dropped, and so are points whose schedule is
        missing or states a wrong figure: they are solved again. The rows of all other points are
        made anew from their schedules. The same goes for baselines that are asked for.

        Args:
            subject: The graph.
            budgets: Budgets of the grid.
            baselines: Names of baselines, with their budgets.

        Returns:
            The study, with the schedules and those of baselines known from earlier sweeps.
        """
        costs = _Costs.of(subject)
        self._subjects[subject.stem] = costs
        known: list[Schedule] = []
        offers: list[Offer] = []
        answered: set[tuple[Budget, str]] = set()
        for key, row in list(self._rows.items()):
            if row.graph != subject.graph.name or row.covers != subject.covers:
                continue
            if row.graph_sha256 != costs.sha256:
                del self._rows[key]
                continue
            if row.method == SOLVED:
                schedule = self._read(subject, row)
                if schedule is None or row.schedule is None:
                    del self._rows[key]
                    continue
                known.append(schedule)
                row = costs.point_row(schedule, row.asked_gap, row.time_limit_s, row.schedule)
            else:
                schedule = self._read_baseline(subject, row)
                asked = (row.method, row.budget) in baselines
                if schedule is None and row.energy_j is not None and asked:
                    del self._rows[key]
                    continue
                packed = self._read_packed(subject, row)
                offers += [Offer(each, row.method) for each in (schedule, packed) if each]
                row = costs.baseline_again(row, schedule)
            self._rows[key] = row
            if row.answers(self._options.gap, self._options.time_limit_s):
                answered.add((row.budget, row.method))
        return Study(
            name=subject.stem,
            graph=subject.graph,
            budgets=[budget for budget in budgets if (budget, SOLVED) not in answered],
            known=known,
            offers=offers,
            baselines=[(name, b) for name, b in baselines if (b, name) not in answered],
            ram=subject.ram,
        )

    def keep(self, event: PointSolved | BaselineRun) -> None:
        """Write the schedules or the result of an event, then the record and the tables."""
        costs = self._subjects[event.study.name]
        match event:
            case PointSolved():
                solved, *improved = event.schedules
                rows = [self._write(costs, solved, self._options.gap, self._options.time_limit_s)]
            case BaselineRun():
                improved = list(event.improved)
                rows = [] if event.failed else [self._write_baseline(costs, event)]
        for other in improved:
            before = self._rows.get((costs.subject.graph.name, other.budget, SOLVED))
            if before is not None:  # it could be kept
                rows.append(self._write(costs, other, before.asked_gap, before.time_limit_s))
        for row in rows:
            self._rows[_key(row)] = row
        self.write_tables()

    def write_tables(self) -> None:
        """Write the record as JSON, CSV and Parquet."""
        record = self.record
        table = record.table()
        parquet = io.BytesIO()
        table.to_parquet(parquet, index=False)
        write_atomically(self.path / "sweep.json", dump_json(record))
        write_atomically(self.path / "sweep.csv", table.to_csv(index=False))
        write_atomically(self.path / "sweep.parquet", parquet.getvalue())

    @property
    def record(self) -> SweepRecord:
        """All rows, sorted."""

        def place(row: SweepRow) -> tuple[str, str, bool, str, bool, float, int]:
            return (
                row.graph,
                row.covers,
                row.method != SOLVED,
                row.method,
                row.deadline_s is None,
                row.deadline_s or 0.0,
                row.ram_bytes,
            )

        return SweepRecord(points=tuple(sorted(self._rows.values(), key=place)))

    def points(self, subject: SweepSubject) -> list[SweepRow]:
        """All rows of a graph, including those of earlier sweeps."""
        return [
            row
            for row in self.record.points
            if row.graph == subject.graph.name and row.covers == subject.covers
        ]

    def _read(self, subject: SweepSubject, row: SweepRow) -> Schedule | None:
        """Read the schedule of a row; None if it is missing, wrong, or of another budget.

        None, too, if the board has no room for it and the firmware's records of it.
        """
        if row.schedule is None:
            return None
        schedule = self._read_true(subject, row.schedule)
        if schedule is None or schedule.budget != row.budget:
            return None
        use = None if subject.ram is None else subject.ram.use(schedule)
        return schedule if use is None or use.fits else None

    def _read_baseline(self, subject: SweepSubject, row: SweepRow) -> Schedule | None:
        """Read the schedule of a baseline's row; None if it is missing, wrong or of another budget.

        Its own budget may be larger than that of the row, which the baseline met as a sum of bytes.
        """
        schedule = None if row.schedule is None else self._read_true(subject, row.schedule)
        if schedule is None or not schedule.actions:
            return None
        ram_bytes = max(row.ram_bytes, schedule.arena_bytes or 0)
        is_usable = schedule.budget == row.budget.model_copy(update={"ram_bytes": ram_bytes})
        return schedule if is_usable and (schedule.peak_bytes or 0) <= row.ram_bytes else None

    def _read_packed(self, subject: SweepSubject, row: SweepRow) -> Schedule | None:
        """Read the schedule like that of a baseline's row within its budget, if there is any."""
        path = _packed_path(subject, row.budget, row.method)
        schedule = self._read_true(subject, path) if (self.path / path).exists() else None
        return schedule if schedule is not None and schedule.budget == row.budget else None

    def _read_true(self, subject: SweepSubject, path: str) -> Schedule | None:
        """Read a schedule of a subject's graph; None if it is missing or states a wrong figure."""
        try:
            schedule = read_json(self.path / path, Schedule)
            require_true_figures(subject.graph, schedule, path)
        except InputError:
            return None
        return schedule

    def _write(
        self, costs: _Costs, schedule: Schedule, gap: float, time_limit_s: float | None
    ) -> SweepRow:
        subject = costs.subject
        path = Path("schedules") / f"{_name(subject, schedule.budget)}.json"
        write_solved(self.path / path, subject.graph, schedule)
        return costs.point_row(schedule, gap, time_limit_s, str(path))

    def _write_baseline(self, costs: _Costs, run: BaselineRun) -> SweepRow:
        """Write the schedules of a baseline, unless an earlier run has found a better one."""
        before = self._rows.get((costs.subject.graph.name, run.budget, run.name))
        if before is not None and _is_better(before, run.schedule):
            return before.model_copy(
                update={"time_limit_s": baseline_limit_s(self._options.time_limit_s)}
            )
        path = None
        if run.schedule is not None:
            path = f"baselines/{_name(costs.subject, run.budget)}-{run.name}.json"
            write_atomically(self.path / path, dump_json(run.schedule))
        if run.packed is not None:
            packed_path = _packed_path(costs.subject, run.budget, run.name)
            write_atomically(self.path / packed_path, dump_json(run.packed))
        return costs.baseline_row(run, self._options, path)


def _name(subject: SweepSubject, budget: Budget) -> str:
    """Name of the files about a budget of a subject."""
    deadline = "no-deadline" if budget.deadline_s is None else f"{budget.deadline_s!r}s"
    return f"{subject.stem}-{budget.ram_bytes}B-{deadline}"


def _packed_path(subject: SweepSubject, budget: Budget, method: str) -> str:
    return f"baselines/{_name(subject, budget)}-{method}-packed.json"


def _is_better(row: SweepRow, schedule: Schedule | None) -> bool:
    """Whether a baseline's row is better than a schedule: less energy, or as much in less RAM.

    The row may have no schedule, and so may the baseline's latest run.
    """
    if row.energy_j is None or schedule is None or schedule.energy_j is None:
        return row.energy_j is not None
    known = row.energy_j, row.arena_bytes or 0
    return known < (schedule.energy_j, schedule.arena_bytes or 0)


def _key(row: SweepRow) -> tuple[str, Budget, str]:
    return row.graph, row.budget, row.method


@dataclass(frozen=True)
class _Costs:
    """Values that all rows of a subject share."""

    subject: SweepSubject
    sha256: str
    kept: Replay

    @classmethod
    def of(cls, subject: SweepSubject) -> _Costs:
        graph = subject.graph
        kept = replay(graph, keep_everything(graph), subject.covers)
        return cls(subject, graph.sha256, kept)

    def point_row(
        self, schedule: Schedule, gap: float, time_limit_s: float | None, path: str
    ) -> SweepRow:
        return self._row(
            SOLVED,
            schedule.budget,
            self._played(schedule.actions, schedule.budget),
            status=schedule.status,
            energy_bound_j=schedule.energy_bound_j,
            any_order_bound_j=schedule.any_order_bound_j,
            gap=schedule.gap,
            arena_bytes=schedule.arena_bytes,
            smallest_ram_bytes=schedule.smallest_ram_bytes,
            smallest_ram_bound_bytes=schedule.smallest_ram_bound_bytes,
            limiting_op=schedule.limiting_op,
            asked_gap=gap,
            time_limit_s=time_limit_s,
            seconds=schedule.solver.seconds,
            solver=schedule.solver.version,
            schedule=path,
            note="; ".join(schedule.notes) or None,
        )

    def baseline_row(self, run: BaselineRun, options: SolverOptions, path: str | None) -> SweepRow:
        schedule = run.schedule
        actions = () if schedule is None else schedule.actions
        return self._row(
            run.name,
            run.budget,
            self._played(actions, run.budget),
            status="feasible" if actions else "no_solution",
            arena_bytes=schedule.arena_bytes if schedule else None,
            fragmentation=run.result.fragmentation,
            asked_gap=options.gap,
            time_limit_s=baseline_limit_s(options.time_limit_s),
            schedule=path,
            note=run.result.note or None,
        )

    def baseline_again(self, row: SweepRow, schedule: Schedule | None) -> SweepRow:
        """A baseline's row, with the values that follow from its schedule made anew."""
        if schedule is None:
            return row.model_copy(update=self._shared)
        played = self._played(schedule.actions, row.budget)
        return self._row(
            row.method,
            row.budget,
            played,
            status="feasible",
            arena_bytes=schedule.arena_bytes,
            fragmentation=row.fragmentation,
            asked_gap=row.asked_gap,
            time_limit_s=row.time_limit_s,
            schedule=row.schedule,
            note=row.note,
        )

    def _played(self, actions: Sequence[Action], budget: Budget) -> Replay | None:
        return verify(self.subject.graph, actions, budget) if actions else None

    @property
    def _shared(self) -> dict[str, object]:
        return {
            "graph": self.subject.graph.name,
            "graph_sha256": self.sha256,
            "profile": self.subject.profile,
            "model": self.subject.model,
            "energy_source": self.subject.graph.energy_source,
            "unconstrained_peak_bytes": self.kept.peak_bytes,
            "unconstrained_energy_j": self.kept.energy_j,
            "unconstrained_time_s": self.kept.time_s,
        }

    def _row(
        self, method: str, budget: Budget, played: Replay | None, **others: object
    ) -> SweepRow:
        values: dict[str, object] = {
            **self._shared,
            "method": method,
            "ram_bytes": budget.ram_bytes,
            "covers": budget.covers,
            "deadline_s": budget.deadline_s,
        }
        if played is not None:
            moments = played.moments
            values |= {
                "energy_j": played.energy_j,
                "time_s": played.time_s,
                "peak_bytes": played.peak_bytes,
                "bytes_written_to_storage": played.bytes_written_to_storage,
                "recomputations": sum(moment.recomputation for moment in moments),
                "page_outs": sum(isinstance(moment.action, PageOut) for moment in moments),
                "page_ins": sum(isinstance(moment.action, PageIn) for moment in moments),
            }
        return SweepRow.model_validate({**values, **others})
