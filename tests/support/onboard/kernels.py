"""The kernel library compiled into a shared object and called through ctypes.

Guards surround every buffer that a kernel writes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy_openblas32

from devices.operation import SIGNATURES, Operand, OpSpec
from tests.support import paths
from tests.support.compiling import compile_once
from tests.support.paths import ROOT

Array: TypeAlias = npt.NDArray[Any]
Matmul: TypeAlias = Literal["in-tree", "cblas"]

KERNELS = ROOT / "onboard" / "kernels"
REFERENCES = paths.REFERENCES / "kernel_references.npz"

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
FLAGS = ("-std=c99", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
LINE_BYTES = 64
GUARD_BYTES = 256
GUARD = 0xA5


def sources() -> list[Path]:
    """Paths of the kernel library's C files."""
    return sorted(KERNELS.rglob("*.c"))


def compile_library(
    directory: Path, matmul: Matmul, optimisation: Sequence[str] = ("-O3", "-march=native")
) -> Path:
    """Compile the whole library as a shared object, once for the same sources.

    Raises :class:`subprocess.CalledProcessError` if the compiler fails.
    """
    target = directory / f"kernels-{matmul}.so"
    command = ["cc", *FLAGS, *WARNINGS, *optimisation, "-fPIC", "-shared", f"-I{KERNELS}"]
    command += map(str, sources())
    if matmul == "cblas":
        command += ["-DJW_CBLAS", "-DJW_CBLAS_SGEMM=scipy_cblas_sgemm", str(openblas())]
        command += [f"-Wl,-rpath,{openblas().parent}"]
    compile_once(command, target, ["-lm"])
    return target


def openblas() -> Path:
    """Path of the OpenBLAS wheel's library."""
    return next(Path(scipy_openblas32.get_lib_dir()).glob("libscipy_openblas*.so"))


def openblas_on_one_thread() -> ctypes.CDLL:
    """The OpenBLAS wheel's library, limited to the caller's thread from now on."""
    library = ctypes.CDLL(str(openblas()))
    library.scipy_openblas_set_num_threads(1)
    return library


def aligned(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes that begin at a cache line."""
    whole = np.zeros(size_bytes + LINE_BYTES, np.uint8)
    start = -whole.ctypes.data % LINE_BYTES
    return whole[start : start + size_bytes]


BUILDS: Mapping[str, tuple[Matmul, tuple[str, ...]]] = {
    "in-tree": ("in-tree", ("-O3", "-march=native")),
    "cblas": ("cblas", ("-O3", "-march=native")),
    "small-tiles": ("in-tree", ("-O2", "-DJW_SMALL_MEMORY=1")),  # as on microcontrollers
}


class KernelLibraries(dict[str, "KernelLibrary"]):
    """Builds of the library by name, each made when it is first needed.

    ``new_directory`` makes a directory from a name.
    """

    def __init__(self, new_directory: Callable[[str], Path]) -> None:
        super().__init__()
        self._new_directory = new_directory

    def __missing__(self, name: str) -> KernelLibrary:
        self[name] = KernelLibrary(compile_library(self._new_directory(name), *BUILDS[name]))
        return self[name]


class _Call(ctypes.Structure):
    _fields_ = (
        ("attributes", ctypes.c_void_p),
        ("scalars", ctypes.c_void_p),
        ("reads", ctypes.c_void_p),
        ("writes", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
    )


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_char_p),
        ("attribute_count", ctypes.c_uint8),
        ("scalar_count", ctypes.c_uint8),
        ("run", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Call))),
        ("workspace_bytes", ctypes.c_void_p),
    )


_WORKSPACE_QUERY = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)


class KernelLibrary:
    """A compiled library and its table of kernels."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        count = ctypes.c_size_t.in_dll(self._library, "jw_kernel_count").value
        table = (_Kernel * count).in_dll(self._library, "jw_kernels")
        self.table: list[_Kernel] = list(table)
        self._by_kind = {entry.kind.decode(): entry for entry in self.table}
        name = ctypes.c_char_p.in_dll(self._library, "jw_matmul_name").value
        self.matmul = (name or b"").decode()
        self._find = self._library.jw_find_kernel
        self._find.restype = ctypes.c_void_p

    def finds(self, kind: str) -> bool:
        """Whether the library finds a kernel of this kind."""
        return self._find(kind.encode()) is not None

    def workspace_bytes(self, spec: OpSpec) -> int:
        query = self._by_kind[spec.kind].workspace_bytes
        if not query:
            return 0
        attributes = np.array(spec.values, np.int32)
        return int(_WORKSPACE_QUERY(query)(attributes.ctypes.data))

    def prepare(
        self,
        spec: OpSpec,
        reads: Sequence[Array],
        writes: Sequence[Array],
        workspace: Array,
        scalars: Sequence[float] = (),
    ) -> PreparedCall:
        """A kernel call that can be repeated."""
        attributes = np.array(spec.values, np.int32)
        values = np.array(scalars, np.float32)
        read_pointers = (ctypes.c_void_p * len(reads))(*(a.ctypes.data for a in reads))
        write_pointers = (ctypes.c_void_p * len(writes))(*(a.ctypes.data for a in writes))
        call = _Call(
            attributes.ctypes.data,
            values.ctypes.data,
            ctypes.cast(read_pointers, ctypes.c_void_p),
            ctypes.cast(write_pointers, ctypes.c_void_p),
            workspace.ctypes.data,
        )
        kept = (attributes, values, read_pointers, write_pointers, *reads, *writes, workspace)
        return PreparedCall(self._by_kind[spec.kind].run, call, kept)

    def run(
        self,
        spec: OpSpec,
        reads: Sequence[Array],
        scalars: Sequence[float] = (),
        *,
        in_place: bool = False,
        offset_bytes: int = 0,
    ) -> list[Array]:
        """Run a kernel once; returns the operands that it writes.

        Every buffer begins ``offset_bytes`` after a cache line and ends in a guard; outputs and
        workspace hold NaN before the call. With ``in_place``, a written operand takes over the
        buffer of a read one wherever the signature allows it. Raises :class:`AssertionError` if a
        guard or an operand that is only read was changed.
        """
        for array, operand in zip(reads, spec.reads, strict=True):
            assert array.size == operand.elements, f"{spec.kind}: {operand.role} {array.shape}"
        inputs = [_Guarded.holding(array, offset_bytes) for array in reads]
        shared = _shared_reads(spec) if in_place else {}
        outputs = [
            inputs[shared[i]] if i in shared else _Guarded.empty(operand, offset_bytes)
            for i, operand in enumerate(spec.writes)
        ]
        workspace = _Guarded(self.workspace_bytes(spec), 0)
        call = self.prepare(
            spec,
            [buffer.payload for buffer in inputs],
            [buffer.payload for buffer in outputs],
            workspace.payload,
            scalars,
        )
        call()
        for what, buffer in (*_named("read", inputs), *_named("write", outputs), ("ws", workspace)):
            assert buffer.is_intact(), f"{spec.key}: wrote beyond {what}"
        for i, (buffer, array) in enumerate(zip(inputs, reads, strict=True)):
            if i not in shared.values():
                same = buffer.payload.tobytes() == np.ascontiguousarray(array).tobytes()
                assert same, f"{spec.key}: changed {spec.reads[i].role}"
        return [
            buffer.payload.view(np.float32).reshape(operand.shape).copy()
            for buffer, operand in zip(outputs, spec.writes, strict=True)
        ]


@dataclass(frozen=True)
class PreparedCall:
    """A kernel call with its operands; the arrays stay alive with it."""

    function: Any
    call: _Call
    kept: tuple[Any, ...]

    def __call__(self) -> None:
        self.function(ctypes.byref(self.call))


class _Guarded:
    """``size`` bytes between guards, ``offset_bytes`` after a cache line; initially NaN."""

    def __init__(self, size: int, offset_bytes: int) -> None:
        self._whole = np.full(size + 2 * LINE_BYTES + GUARD_BYTES, GUARD, np.uint8)
        start = -self._whole.ctypes.data % LINE_BYTES + offset_bytes
        self.payload = self._whole[start : start + size]
        self._guards = (self._whole[:start], self._whole[start + size :])
        self.payload[:] = 0xFF

    @classmethod
    def holding(cls, array: Array, offset_bytes: int) -> _Guarded:
        buffer = cls(array.nbytes, offset_bytes)
        buffer.payload[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return buffer

    @classmethod
    def empty(cls, operand: Operand, offset_bytes: int) -> _Guarded:
        return cls(operand.bytes, offset_bytes)

    def is_intact(self) -> bool:
        return all(bool(np.all(guard == GUARD)) for guard in self._guards)


def _named(name: str, buffers: Sequence[_Guarded]) -> Iterator[tuple[str, _Guarded]]:
    for i, buffer in enumerate(buffers):
        yield f"{name} {i}", buffer


def _shared_reads(spec: OpSpec) -> dict[int, int]:
    """Index of each written operand → index of the read one whose buffer it takes over."""
    read_roles = [operand.role for operand in spec.reads]
    return {
        i: read_roles.index(spec.in_place[operand.role])
        for i, operand in enumerate(spec.writes)
        if operand.role in spec.in_place
    }


# --- operands by role ---------------------------------------------------------------------------

Roles: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class FamilyCase:
    """One set of attributes of a family of kinds, with the value of every operand by role.

    PyTorch computed the values in float64. A role has the same value for all kinds.
    """

    family: str
    attributes: Mapping[str, int]
    scalars: Mapping[str, float]
    roles: Roles

    @property
    def specs(self) -> list[OpSpec]:
        """Operations of the family whose operands all have recorded values."""
        specs = [OpSpec.of(kind, **self.attributes) for kind in kinds_of(self.family)]
        return [s for s in specs if all(o.role in self.roles for o in (*s.reads, *s.writes))]

    def reads(self, spec: OpSpec) -> list[Array]:
        return [self.roles[operand.role] for operand in spec.reads]

    def writes(self, spec: OpSpec) -> list[Array]:
        return [self.roles[operand.role] for operand in spec.writes]

    def scalar_values(self, spec: OpSpec) -> list[float]:
        return [self.scalars[name] for name in spec.signature.scalars]

    def __str__(self) -> str:
        return "-".join((self.family, *(f"{value}" for value in self.attributes.values())))


DERIVED_KINDS = tuple(
    kind
    for kind in SIGNATURES
    if kind.partition(".")[0].endswith(("_part", "_block", "_rows", "_bits", "_places", "packing"))
)
"""Kinds whose reference is another kind, with the same bits; that of packing is its input."""


def required_sizes(kind: str) -> dict[str, int]:
    """Attributes without which there is no operation of a kind."""
    family, _, entry = kind.partition(".")
    required = {"continued": 1, "bias": 0} if family.endswith("_block") else {}
    if family in {"conv2d_part", "linear_part"}:  # those that go on with sums have no bias
        required["bias"] = 0
    if family in {"conv2d_part", "conv2d_block"}:
        stride = 1 if entry == "input_gradient" else 2
        required |= {"groups": 1, "stride_height": stride, "stride_width": 1, "pad_bottom": 1}
    if family == "depthwise_part":
        required |= dict.fromkeys(("in_channels", "out_channels", "groups"), 6)
    return required


def kinds_of(family: str) -> list[str]:
    """Kinds of a family, such as conv2d."""
    return [kind for kind in SIGNATURES if kind.partition(".")[0] == family]


def load_cases() -> list[FamilyCase]:
    """Cases with their recorded references."""
    import json

    with np.load(REFERENCES) as archive:
        index = json.loads(str(archive["index"]))
        return [
            FamilyCase(
                case["family"],
                case["attributes"],
                case["scalars"],
                {role: archive[f"{i}/{role}"] for role in case["roles"]},
            )
            for i, case in enumerate(index)
        ]


def random_bits(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """Raw bits of a generator that NumPy promises never to change."""
    return np.random.PCG64(seed).random_raw(count).astype(np.uint64)


def uniform(shape: Sequence[int], seed: int) -> npt.NDArray[np.float32]:
    """Values in [-1, 1), almost certainly all different."""
    count = int(np.prod(shape))
    values = (random_bits(count, seed) >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0
    return values.astype(np.float32).reshape(tuple(shape))


def fill(operand: Operand, seed: int) -> Array:
    """A value that the operand may have when its operation is measured alone."""
    if operand.fill == "index":
        bits = random_bits(operand.elements, seed) % np.uint64(operand.index_bound)
        return bits.astype(np.int32).reshape(operand.shape)
    values = uniform(operand.shape, seed)
    return np.abs(values) + np.float32(0.1) if operand.fill == "positive" else values
