"""TrainingStep: every operation of one training step, in a valid execution order, without costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from devices.errors import Defect, InputError
from devices.operation import ELEMENT_BYTES, Loss, OpSpec, Phase
from devices.quantities import Slices
from networks.kinds import Optimizer, Place, TensorKind
from networks.training.network import Network

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True)
class StepOp:
    """One operation of a training step.

    ``reads`` and ``writes`` name tensors in the order of the signature's operands. ``in_place``
    maps a written tensor to the read one whose bytes it overwrites.
    """

    name: str
    layer: str
    spec: OpSpec
    phase: Phase
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scalars: Mapping[str, float]
    in_place: Mapping[str, str]

    @property
    def recomputable(self) -> bool:
        """False for an operation that changes a parameter or statistic, which runs once a step."""
        return not self.spec.signature.mutates

    @property
    def overwrites(self) -> bool:
        """True if it overwrites an operand here that it leaves as it is in a loop of its own."""
        signature = self.spec.signature
        return bool(self.in_place) and not (signature.mutates or signature.continues)

    def as_part(self, name: str, spec: OpSpec, names: Mapping[str, str]) -> StepOp:
        """An operation of the same layer and phase that does some of the work, in place.

        Args:
            name: Its name.
            spec: What it computes, with scalars that this operation has.
            names: Tensors by the roles of its operands, and by others, which do not matter.
        """
        return replace(
            self,
            name=name,
            spec=spec,
            reads=tuple(names[operand.role] for operand in spec.reads),
            writes=tuple(names[operand.role] for operand in spec.writes),
            scalars={scalar: self.scalars[scalar] for scalar in spec.signature.scalars},
            in_place={names[written]: names[read] for written, read in spec.in_place.items()},
        )


@dataclass(frozen=True)
class Part:
    """Rows, and columns of them, of a tensor that a step has in parts.

    ``whole`` names the tensor. It is [outer, whole_rows, whole_columns, …] in memory; most have no
    columns, and are not repeated.
    """

    whole: str
    first: int
    rows: int
    whole_rows: int
    outer: int = 1
    first_column: int = 0
    columns: int = 1
    whole_columns: int = 1

    @property
    def axes(self) -> tuple[int, int, int, int]:
        """Shape of the whole tensor, for ``reshape``."""
        return self.outer, self.whole_rows, self.whole_columns, -1

    @property
    def index(self) -> tuple[slice, slice, slice]:
        """The part in a tensor of shape :attr:`axes`."""
        rows = slice(self.first, self.first + self.rows)
        columns = slice(self.first_column, self.first_column + self.columns)
        return slice(None), rows, columns

    @property
    def share(self) -> tuple[int, int]:
        """Size of the part and of the whole, in the same unit."""
        return self.rows * self.columns, self.whole_rows * self.whole_columns

    def of(self, whole: NDArray[_Number]) -> NDArray[_Number]:
        """The part of a tensor's values, as a view of them."""
        return whole.reshape(self.axes)[self.index]


@dataclass(frozen=True)
class StepTensor:
    """One tensor of a training step.

    ``home`` is set for tensors that no operation writes. ``persist`` is where a valid copy must be
    when the step ends. The step reads and writes ``stretches`` of equal size, each separately, out
    of the ``home_stretches`` that the tensor has in storage. ``copy_of`` names the frozen tensor
    that has the same values.
    """

    name: str
    bytes: int
    kind: TensorKind
    home: Place | None = None
    persist: Place | None = None
    stretches: int = 1
    home_stretches: int = 1
    shape: tuple[int, ...] | None = None
    part: Part | None = None
    copy_of: str | None = None

    @property
    def is_table(self) -> bool:
        """True if the step reads only some of the rows that the tensor has in storage."""
        return self.home_stretches > 1


@dataclass(frozen=True)
class ValuesLeftBehind(Mapping[str, NDArray[Any]]):
    """Values of a file in a process that was sent the step only; to ask for them is a defect."""

    path: Path

    def __getitem__(self, name: str) -> NDArray[Any]:
        raise self._missing()

    def __iter__(self) -> Iterator[str]:
        raise self._missing()

    def __len__(self) -> int:
        raise self._missing()

    def _missing(self) -> Defect:
        return Defect(
            f"{self.path}: its values were not sent to this process, which can read the file itself"
        )


@dataclass(frozen=True)
class NetworkFile:
    """File of a user's network.

    ``values`` holds all its parameters and buffers by the module's own names. ``tensor_of`` maps
    these names to the step's tensors: to their own names, but for tied weights, of which the first
    name counts. ``counters`` names the buffers that count training steps. ``constants`` are tensors
    of the step that the module does not have. ``remark`` says how the network is trained, if that
    is not plain. ``save`` writes the file again with other values, if its format allows it.
    ``restored`` turns values by the names of tensors into arrays as the file has them, where these
    differ.

    Pickled, it is the file without its values (:class:`ValuesLeftBehind`): a schedule depends on
    none of them, they may be large, and they are read from a file that is open here. A process that
    trains the step reads the file itself.
    """

    path: Path
    sha256: str
    values: Mapping[str, NDArray[Any]] = field(compare=False)
    tensor_of: Mapping[str, str] = field(compare=False)
    counters: tuple[str, ...]
    constants: Mapping[str, NDArray[np.float32]] = field(compare=False)
    remark: str = ""
    save: Callable[[Mapping[str, NDArray[Any]], Path], None] | None = field(
        default=None, compare=False
    )
    restored: Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]] | None = field(
        default=None, compare=False
    )

    def initial(self, name: str) -> NDArray[Any] | None:
        """Value that a tensor of the step starts from; None if the file does not have it."""
        found = self.constants.get(name)
        return self.values.get(name) if found is None else found

    def __getstate__(self) -> dict[str, Any]:
        left = ValuesLeftBehind(self.path)
        return {**vars(self), "values": left, "constants": left, "save": None, "restored": None}


@dataclass(frozen=True)
class Adapter:
    """A trained matrix of a low-rank adapter, whose initial values are drawn from ±``bound``."""

    name: str
    shape: tuple[int, int]
    bound: float


@dataclass(frozen=True)
class TrainingStep:
    """All operations and tensors of one training step.

    ``parameters_in`` is the home of parameters and optimizer state between steps. ``file`` is
    absent for a built-in network. ``loss`` was added to the file's network, ``train`` selected the
    trained parameters, and ``lora`` added the ``adapters``; they are None where nobody asked for
    them. ``accumulate`` is the number of parts of the batch, each of which has inputs of its own.
    ``slices`` limits parts of weights and activations; None if all are whole. With ``codecs``, the
    backward pass reads codes of some activations (:mod:`networks.training.codecs`). ``whole`` is
    the same step without parts and codes; None if it has neither. Recurrent layers that are
    ``unrolled`` have values of their own, and are so in ``whole``, too. ``network`` is what the
    step was derived from.
    """

    name: str
    batch: int
    optimizer: Optimizer
    ops: tuple[StepOp, ...]
    tensors: tuple[StepTensor, ...]
    network: Network = field(compare=False, repr=False)
    parameters_in: Place = "ram"
    file: NetworkFile | None = None
    loss: Loss | None = None
    train: tuple[str, ...] | None = None
    accumulate: int = 1
    lora: str | None = None
    adapters: tuple[Adapter, ...] = ()
    slices: Slices | None = None
    unrolled: bool = False
    codecs: bool = False
    whole: TrainingStep | None = None

    @cached_property
    def tensor(self) -> Mapping[str, StepTensor]:
        """Tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def distinct_specs(self) -> tuple[OpSpec, ...]:
        """Distinct operations in the order of first execution."""
        return tuple(dict.fromkeys(op.spec for op in self.ops))

    @cached_property
    def costed_specs(self) -> tuple[OpSpec, ...]:
        """The distinct operations whose costs are those of all, which a profile must measure."""
        return tuple(dict.fromkeys(spec.costed_as for spec in self.distinct_specs))

    @cached_property
    def cost_keys(self) -> Mapping[str, str]:
        """Key of the operation whose cost is that of an op, by the op's name."""
        return {op.name: op.spec.costed_as.key for op in self.ops}

    @cached_property
    def parameter_count(self) -> int:
        """Number of trained numbers that the step reads, without running statistics."""
        return sum(
            self.tensor[name].bytes // ELEMENT_BYTES
            for op in self.ops
            for operand, name in zip(op.spec.reads, op.reads, strict=True)
            if operand.role == "parameter"
        )

    @cached_property
    def statistics_count(self) -> int:
        """Number of running statistics, which batch norm keeps from step to step untrained."""
        statistics = {
            self.buffer[name]
            for op in self.ops
            if op.spec.kind == "batch_norm.statistics_update"
            for name in op.in_place.values()
        }
        return sum(self.tensor[name].bytes // ELEMENT_BYTES for name in statistics)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences to read before training, such as that some layers do not learn."""
        found = [] if self.file is None or not self.file.remark else [self.file.remark]
        alone = [
            op.layer
            for op in self.ops
            if op.spec.kind == "batch_norm.forward"
            and op.spec.attributes["batch"] * op.spec.attributes["plane"] == 1
        ]
        if alone:
            remedy = "choose --batch 2" if self.file is None else "export it with a batch of 2"
            found.append(
                f"{self.title}: a batch norm of one value for each channel, such as {alone[0]},"
                f" gives the same whatever it reads, so that no layer before it learns; {remedy}"
                " or more"
            )
        return tuple(found)

    @cached_property
    def activation_bytes(self) -> int:
        """Bytes of all activations; a tensor overwritten in place counts once."""
        shared = {written for op in self.ops for written in op.in_place}
        return sum(
            tensor.bytes
            for tensor in self.tensors
            if tensor.kind == "activation" and tensor.name not in shared
        )

    @cached_property
    def buffer(self) -> Mapping[str, str]:
        """The first tensor whose bytes each tensor shares, through any operations in place.

        For most tensors, that is the tensor itself.
        """
        root = {tensor.name: tensor.name for tensor in self.tensors}
        for op in self.ops:
            for written, read in op.in_place.items():
                root[written] = root[read]
        return root

    @property
    def learning_rate(self) -> float:
        """Learning rate of all updates; 0 without updates."""
        rates = (op.scalars["learning_rate"] for op in self.ops if "learning_rate" in op.scalars)
        return next(rates, 0.0)

    def updating_with(
        self,
        *,
        learning_rate: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
    ) -> TrainingStep:
        """The same step with other numbers in all updates.

        Args:
            learning_rate: The learning rate; None leaves it.
            momentum: The momentum of the velocity; None leaves it.
            weight_decay: The decay, which Adam adds to the gradient as PyTorch's Adam and SGD do;
                None leaves it.

        Raises:
            InputError: The step's optimizer has no momentum.
        """
        whole = self.whole and self.whole.updating_with(
            learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay
        )
        decay = "gradient_decay" if self.optimizer == "adam" else "weight_decay"
        wanted = {"learning_rate": learning_rate, "momentum": momentum, decay: weight_decay}
        changed = {name: value for name, value in wanted.items() if value is not None}

        def updated(op: StepOp) -> StepOp:
            if "learning_rate" not in op.scalars:
                return op
            for name in changed:
                if name not in op.scalars:
                    raise InputError(
                        f"{self.title}: the optimizer {self.optimizer} has no {name}",
                        remedy="solve with --optimizer momentum or nesterov",
                    )
            return replace(op, scalars={**op.scalars, **changed})

        return replace(self, ops=tuple(map(updated, self.ops)), whole=whole)

    @property
    def title(self) -> str:
        """Name, batch size, and what is not as usual, for messages."""
        trained = "" if self.train is None else f", training {' and '.join(self.train)}"
        parts = f", in {self.accumulate} parts" if self.accumulate > 1 else ""
        trained += "" if self.lora is None else f", LoRA {self.lora}"
        home = ", parameters in storage" if self.parameters_in == "storage" else ""
        home += "" if self.slices is None else f", slices of {self.slices}"
        home += ", with codecs" if self.codecs else ""
        return f"{self.name}, batch {self.batch}{parts}{trained}{home}"
