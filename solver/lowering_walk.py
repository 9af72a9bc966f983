"""A schedule step by step: where everything is, which transfers are under way, what becomes of each
step on the board."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from devices.operation import OpSpec
from devices.plan import Action, Block, Compute, Deed, Kept, Observed, PageIn, PageOut, Probe
from solver import schedule as scheduled
from solver.lowering_guards import Freed
from solver.lowering_moves import Mover, ordered_moves
from solver.lowering_values import KeptValue, kept_values, losses, trained_parameter
from solver.training.step import TrainingStep


class Walk:
    """Through a schedule that both referees have accepted; ``actions`` is what it has come to, and
    ``freed`` when what lost its bytes.

    An action waits until what it reads has come and what it overwrites in place has gone. What is
    freed may be overwritten by anyone, so that everything behind a free waits for what the free
    waits for. Every action repeats what those in front of it have waited for, which takes no time,
    so that a probe that nobody watches can be left out.
    """

    def __init__(
        self,
        step: TrainingStep,
        schedule: scheduled.Schedule,
        workspace_bytes: Mapping[OpSpec, int],
    ) -> None:
        assert schedule.resident_address is not None
        assert schedule.arena_bytes is not None
        self._step = step
        self._ops = {op.name: op for op in step.ops}
        self._arena_bytes = schedule.arena_bytes
        self._workspace_bytes = workspace_bytes
        self._kept = kept_values(step)
        self._begin = schedule.resident_address
        self._address = dict(schedule.resident_address)
        page_outs = [each for each in schedule.steps if isinstance(each, scheduled.PageOut)]
        self._last_slot = {page_out.tensor: slot for slot, page_out in enumerate(page_outs)}
        self._slot: dict[str, int] = {}
        self._transfers = 0
        self._over = 0
        # Of what is in RAM: the number of the transfer that brings it, or takes it away.
        self._coming: dict[str, int] = {}
        self._going: dict[str, int] = {}
        self.slot_bytes: list[int] = []
        self.actions: list[Action] = []
        self.freed: list[Freed] = []

    def run(self, steps: Iterable[scheduled.Step]) -> None:
        for index, each in enumerate(steps):
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
                    block = Block(self._address.pop(tensor), self._step.tensor[tensor].bytes)
                    self.freed.append(Freed(len(self.actions), tensor, block, self._over))
        self._finish()

    def kept(self) -> tuple[tuple[Kept, ...], tuple[Action, ...]]:
        """What the step leaves to the next, and the copies to be made of it when it is over."""
        kept, copies = [], []
        for value in self._kept:
            address = self._begin.get(value.tensor)
            slot = self._slot.get(value.result)
            if slot is None and self._transfers and address is not None:
                slot = self._new_slot(value.bytes)
                copies.append(
                    Action(PageOut(value.result, Block(address, value.bytes), slot), self._over)
                )
            kept.append(Kept(value.tensor, value.result, value.bytes, address, slot))
        return tuple(kept), tuple(copies)

    def _compute(self, index: int, done: scheduled.Compute) -> None:
        op = self._ops[done.op]
        trained = trained_parameter(op)
        if trained is not None:
            parameter, gradient = trained
            self._wait_for(self._coming, [gradient])
            self._probe(parameter, "gradient", gradient)
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
                workspace=Block(done.workspace_address or 0, needed) if needed else None,
                scalars=op.scalars,
            ),
            index,
        )
        for value in self._kept:
            if value.home == "storage" and value.updated_by == op.name:
                self._probe(value.tensor, value.what, value.result)

    def _page_out(self, index: int, step: scheduled.PageOut) -> None:
        self._wait_for(self._coming, [step.tensor])
        block = self._block(step.tensor)
        self._slot[step.tensor] = slot = self._new_slot(block.bytes)
        self._do(PageOut(step.tensor, block, slot, step.asynchronous), index)
        self._transfer_begun(self._going, step)

    def _page_in(self, index: int, step: scheduled.PageIn) -> None:
        name = step.tensor
        assert step.address is not None
        self._address[name] = step.address
        block = self._block(name)
        if name in self._slot:
            page_in = PageIn(name, block, self._slot[name], "this step", step.asynchronous)
        else:
            slot = self._last_slot[self._result_of(name).result]
            page_in = PageIn(name, block, slot, "last step", step.asynchronous)
        self._do(page_in, index)
        self._transfer_begun(self._coming, step)

    def _finish(self) -> None:
        """All transfers are over; what is kept in RAM goes to where the next step looks for it."""
        self._over = self._transfers
        in_ram = [value for value in self._kept if value.home == "ram"]
        movers = [
            Mover(value.result, self._block(value.result), self._begin[value.tensor])
            for value in in_ram
        ]
        movers += [Mover(loss.name, self._block(loss.name), None) for loss in losses(self._step)]
        for move in ordered_moves(movers, self._arena_bytes):
            self._do(move)
            self._address[move.tensor] = move.to
        for loss in losses(self._step):
            self._probe(loss.name, "loss", loss.name)
        for value in in_ram:
            self._probe(value.tensor, value.what, value.result)

    def _wait_for(self, transfers: dict[str, int], names: Iterable[str]) -> None:
        self._over = max(self._over, *(transfers.pop(name, 0) for name in names), 0)

    def _transfer_begun(
        self, under_way: dict[str, int], step: scheduled.PageIn | scheduled.PageOut
    ) -> None:
        """Behind a synchronous one, all before it are over as well."""
        self._transfers += 1
        if step.asynchronous:
            under_way[step.tensor] = self._transfers
        else:
            self._over = self._transfers

    def _new_slot(self, size_bytes: int) -> int:
        self.slot_bytes.append(size_bytes)
        return len(self.slot_bytes) - 1

    def _result_of(self, name: str) -> KeptValue:
        return next(value for value in self._kept if value.tensor == name)

    def _block(self, name: str) -> Block:
        return Block(self._address[name], self._step.tensor[name].bytes)

    def _probe(self, tensor: str, what: Observed, value: str) -> None:
        self._do(Probe(tensor, what, self._block(value)))

    def _do(self, deed: Deed, step: int | None = None) -> None:
        self.actions.append(Action(deed, self._over, step))
