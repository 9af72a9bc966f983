"""Walk through a schedule: addresses, transfers under way, and the plan's actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from devices.operation import OpSpec
from devices.plan import (
    Action,
    ArenaRange,
    Compute,
    Frozen,
    Kept,
    Operation,
    PageIn,
    PageOut,
    Probe,
    RowsIn,
    Select,
)
from networks.training.step import TrainingStep
from replay.lowering.moves import Mover, with_targets
from replay.lowering.values import (
    KeptValue,
    frozen_tensors,
    kept_values,
    losses,
    step_tables,
    trained_parameter,
)
from solver.problem import schedule as scheduled


@dataclass(frozen=True)
class Freed:
    """A block that is freed before the plan's action with the index ``before``.

    It may be overwritten once the first ``waits_for`` transfers are over.
    """

    before: int
    tensor: str
    block: ArenaRange
    waits_for: int


class Walk:
    """Lowers the actions of a schedule that both referees have accepted.

    ``actions`` are the plan's actions, ``freed`` the blocks that were freed and when. All transfers
    are over when the last action has ended.

    An action waits until the tensors that it reads are paged in, and those that it overwrites in
    place are paged out. Freed bytes may be overwritten by any later action, so that all actions
    after a free wait for the transfers that the free waits for. Every action states all transfers
    that earlier actions have waited for. This takes no time, and allows the executor to skip the
    probes of steps that are not watched.
    """

    def __init__(
        self,
        step: TrainingStep,
        schedule: scheduled.Schedule,
        workspace_bytes: Mapping[OpSpec, int],
        packed_bytes: Mapping[str, int],
    ) -> None:
        assert schedule.resident_address is not None
        assert schedule.arena_bytes is not None
        self.step = step
        self._ops = {op.name: op for op in step.ops}
        self._arena_bytes = schedule.arena_bytes
        self._workspace_bytes = workspace_bytes
        self._packed_bytes = packed_bytes
        self._kept = kept_values(step)
        self.tables = step_tables(step)
        self.frozen = tuple(
            Frozen(tensor.name, tensor.bytes)
            for tensor in frozen_tensors(step)
            if not tensor.is_table
        )
        self._frozen_number = {each.tensor: number for number, each in enumerate(self.frozen)}
        self._begin = schedule.resident_address
        self._address = dict(schedule.resident_address)
        page_outs = [each for each in schedule.actions if isinstance(each, scheduled.PageOut)]
        self._last_slot = {page_out.tensor: slot for slot, page_out in enumerate(page_outs)}
        self._slot: dict[str, int] = {}
        self._transfers = 0
        self._over = 0
        # By tensor: the number of the page-in or page-out that is under way.
        self._coming: dict[str, int] = {}
        self._going: dict[str, int] = {}
        self.slot_bytes: list[int] = []
        self.actions: list[Action] = []
        self.freed: list[Freed] = []
        for number, name in enumerate(self.tables.indices):
            self._do(Select(number, self._block(name)))

    def run(self, actions: Iterable[scheduled.Action]) -> None:
        for index, each in enumerate(actions):
            match each:
                case scheduled.Compute():
                    self._compute(index, each)
                case scheduled.PageOut():
                    self._page_out(index, each)
                case scheduled.PageIn():
                    self._page_in(index, each)
                case scheduled.Free(tensor=tensor):
                    self._wait_for(self._coming, [tensor])
                    self._wait_for(self._going, [tensor])
                    block = ArenaRange(self._address.pop(tensor), self.step.tensor[tensor].bytes)
                    self.freed.append(Freed(len(self.actions), tensor, block, self._over))
        self._over = self._transfers

    def left(self) -> tuple[Mover, ...]:
        """Tensors that the step leaves in RAM, with their addresses in the next step."""
        results = [
            Mover(value.result, self._block(value.result), self._begin[value.tensor])
            for value in self._kept
            if value.home == "ram"
        ]
        found = [Mover(loss.name, self._block(loss.name), None) for loss in losses(self.step)]
        return with_targets([*results, *found], self._arena_bytes)

    def ending(self, first: Iterable[Operation], at: Mapping[str, ArenaRange]) -> Iterator[Action]:
        """The last actions: the ``first`` operations, then probes of losses and kept values.

        ``at`` has the blocks of the tensors left in RAM, after the moves.
        """
        operations = [*first]
        operations += [Probe(loss.name, "loss", at[loss.name]) for loss in losses(self.step)]
        operations += [
            value.probe(at[value.result].address) for value in self._kept if value.home == "ram"
        ]
        return (Action(operation, self._over) for operation in operations)

    def kept(self) -> tuple[tuple[Kept, ...], tuple[Action, ...]]:
        """Values kept for the next step, and the page-outs of copies of them after the step."""
        kept, copies = [], []
        for value in self._kept:
            address = self._begin.get(value.tensor)
            slot = self._slot.get(value.result)
            if slot is None and self._transfers and address is not None:
                slot = self._new_slot(value.bytes)
                copies.append(
                    Action(
                        PageOut(value.result, ArenaRange(address, value.bytes), slot), self._over
                    )
                )
            kept.append(Kept(value.tensor, value.result, value.bytes, address, slot))
        return tuple(kept), tuple(copies)

    def _compute(self, index: int, done: scheduled.Compute) -> None:
        op = self._ops[done.op]
        trained = trained_parameter(op)
        if trained is not None:
            parameter, gradient = trained
            self._wait_for(self._coming, [gradient])
            self._do(Probe(parameter, "gradient", self._block(gradient)))
        self._wait_for(self._coming, op.reads)
        self._wait_for(self._going, op.in_place.values())
        reads = tuple(self._address[name] for name in op.reads)
        for name in op.in_place.values():
            del self._address[name]
        self._address.update(done.address or {})
        needed = self._workspace_bytes[op.spec]
        self._do(
            Compute(
                op=op.name,
                spec=op.spec,
                reads=reads,
                writes=tuple(self._address[name] for name in op.writes),
                workspace=ArenaRange(done.workspace_address or 0, needed) if needed else None,
                scalars=op.scalars,
            ),
            index,
        )
        for value in self._kept:
            if value.home == "storage" and value.updated_by == op.name:
                self._do(value.probe(self._address[value.result]))

    def _page_out(self, index: int, action: scheduled.PageOut) -> None:
        self._wait_for(self._coming, [action.tensor])
        block = self._block(action.tensor)
        self._slot[action.tensor] = slot = self._new_slot(block.bytes)
        packed_bytes = self._packed_bytes.get(action.tensor)
        self._do(PageOut(action.tensor, block, slot, action.asynchronous, packed_bytes), index)
        self._transfer_begun(self._going, action)

    def _page_in(self, index: int, action: scheduled.PageIn) -> None:
        name = action.tensor
        assert action.address is not None
        self._address[name] = action.address
        block = self._block(name)
        page_in: PageIn | RowsIn
        if name in self._slot:
            page_in = PageIn(name, block, self._slot[name], "this step", action.asynchronous)
        elif name in self.tables.number:
            page_in = RowsIn(name, block, self.tables.number[name], action.asynchronous)
        elif name in self._frozen_number:
            number = self._frozen_number[name]
            page_in = PageIn(name, block, number, "frozen", action.asynchronous)
        else:
            slot = self._last_slot[self._result_of(name).result]
            page_in = PageIn(name, block, slot, "last step", action.asynchronous)
        self._do(page_in, index)
        self._transfer_begun(self._coming, action)

    def _wait_for(self, transfers: dict[str, int], names: Iterable[str]) -> None:
        self._over = max(self._over, *(transfers.pop(name, 0) for name in names), 0)

    def _transfer_begun(
        self, under_way: dict[str, int], action: scheduled.PageIn | scheduled.PageOut
    ) -> None:
        """Note a transfer; a synchronous one ends after all transfers before it."""
        self._transfers += 1
        if action.asynchronous:
            under_way[action.tensor] = self._transfers
        else:
            self._over = self._transfers

    def _new_slot(self, size_bytes: int) -> int:
        self.slot_bytes.append(size_bytes)
        return len(self.slot_bytes) - 1

    def _result_of(self, name: str) -> KeptValue:
        return next(value for value in self._kept if value.tensor == name)

    def _block(self, name: str) -> ArenaRange:
        return ArenaRange(self._address[name], self.step.tensor[name].bytes)

    def _do(self, operation: Operation, schedule_index: int | None = None) -> None:
        self.actions.append(Action(operation, self._over, schedule_index))
