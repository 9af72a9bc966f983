"""How much of a campaign is done, and what is told of it while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from campaigns.design.cells import Cell
from campaigns.keeping.progress import BoardProgress, CampaignProgress
from campaigns.running.lanes import BoardLane


@dataclass(frozen=True)
class Event:
    """Something that has ended: what, and how many of all ``things`` have by now."""

    text: str
    done: int
    things: int


@dataclass
class Tally:
    """Counts of the schedules and replays of a campaign.

    ``done`` of ``things`` exist, ``finished`` of them since the call began. ``width`` returns how
    many searches run at once.
    """

    on_event: Callable[[Event], None]
    width: Callable[[], int]
    done: int = 0
    things: int = 0
    finished: int = 0
    _cells: Counter[str] = field(default_factory=Counter)
    _solved: Counter[str] = field(default_factory=Counter)
    _solve_s: list[float] = field(default_factory=list)

    def count_cells(self, cells: Iterable[Cell], solved: Iterable[Cell]) -> None:
        """Count the campaign's cells, and those that are solved already."""
        self._cells.update(cell.board for cell in cells)
        self._solved.update(cell.board for cell in solved)
        self.things += self._cells.total()
        self.done += self._solved.total()

    def note(self, text: str) -> None:
        """Tell something that finishes neither a schedule nor a replay."""
        self.on_event(Event(text, self.done, self.things))

    def finish_replay(self, text: str) -> None:
        """Count and tell a finished replay."""
        self._finish(text)

    def finish_solve(self, cell: Cell, seconds: float, status: str) -> None:
        """Count and tell a finished search."""
        self._solved[cell.board] += 1
        self._solve_s.append(seconds)
        self._finish(f"{cell}: {status.replace('_', ' ')}")

    def progress(self, lanes: Mapping[str, BoardLane], solving: Iterable[Cell]) -> CampaignProgress:
        """Progress of all boards."""
        return CampaignProgress(
            boards=tuple(self._board(board, lanes.get(board)) for board in self._cells),
            solving=tuple(map(str, solving)),
        )

    def _finish(self, text: str) -> None:
        self.done += 1
        self.finished += 1
        self.note(text)

    def _board(self, board: str, lane: BoardLane | None) -> BoardProgress:
        cells, solved = self._cells[board], self._solved[board]
        solve_s = self._solving_left_s() if solved < cells else 0.0
        counts = BoardProgress(
            board=board,
            cells=cells,
            solved=solved,
            replays=0,
            finished=0,
            failed=0,
            left_s=solve_s,
        )
        if lane is None:
            return counts
        replay_s = lane.left_s
        return counts.model_copy(
            update={
                "replays": lane.replay_count,
                "finished": lane.finished,
                "failed": lane.failed,
                "activity": lane.activity,
                "since_s": lane.since_s,
                "waits_for": lane.waits_for,
                "given_up": lane.given_up,
                "left_s": None if replay_s is None or solve_s is None else replay_s + solve_s,
            }
        )

    def _solving_left_s(self) -> float | None:
        """Estimated time of all searches that are left, by those of this call; None before any."""
        if not self._solve_s:
            return None
        left = self._cells.total() - self._solved.total()
        return fmean(self._solve_s) * left / max(1, self.width())
