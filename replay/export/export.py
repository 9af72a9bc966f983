"""Export an execution plan as a C project: kernels, executor, plan, and a training example."""

from __future__ import annotations

import shlex
import string
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from devices.description import Storage
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from profiler.building.plan_source import plans_source
from profiler.building.sources import EXECUTOR, KERNELS, ONBOARD, read_sources
from profiler.building.store_layout import StoreLayout, expected_written_bytes, store_layout
from profiler.building.toolchain import KERNEL_FLAGS, NO_PLANS
from replay.export.footprint import EXECUTOR_BYTES, PlanFootprint, plan_footprint
from replay.export.tables import (
    TrainingData,
    addresses_header,
    fingerprint,
    training_file,
    values_source,
    workspace_queries,
)

TEMPLATES = ONBOARD / "project"
LICENSE = ONBOARD / "LICENSE"

_COLUMNS = 100
_VERBATIM = ("main.c", "plan_values.h", "storage_file.c", "storage_file.h")


@dataclass(frozen=True)
class Compilation:
    """Compilation of the project.

    Attributes:
        flags: flags of the example, besides those that every kernel is compiled with.
        source: a sentence on the origin of the flags.
        board: compiler and flags of objects for a board that cannot run the example itself.
        blas: compute matrix products with OpenBLAS.
    """

    flags: tuple[str, ...]
    source: str
    board: tuple[str, tuple[str, ...]] | None = None
    blas: bool = False


@dataclass(frozen=True)
class Provenance:
    """Origin of the project, for its README.

    Attributes:
        schedule: name of the schedule's file.
        network: the network and its optimizer.
        costs: sentences on the costs that the schedule was solved with: their origin, what they
            predict, and their energy source.
    """

    schedule: str
    network: str
    costs: str


@dataclass(frozen=True)
class Project:
    """An exported project: its files by path, storage layout and memory footprint."""

    files: Mapping[str, bytes]
    layout: StoreLayout
    footprint: PlanFootprint


def c_project(
    plan: ExecutionPlan,
    storage: Storage | None,
    workspace_bytes: Mapping[OpSpec, int],
    training: TrainingData,
    compilation: Compilation,
    provenance: Provenance,
) -> Project:
    """Make the files of a project. Equal arguments always give equal files.

    Args:
        plan: the plan.
        storage: the storage that the plan pages to.
        workspace_bytes: workspace by operation, with which the plan was lowered.
        training: initial values and batches of the example.
        compilation: compiler flags.
        provenance: origin of the schedule.

    Raises:
        RequestRefused: the plan is too large for the executor's table.
    """
    kernels = read_sources(KERNELS)
    executor = {name: text for name, text in read_sources(EXECUTOR).items() if name != NO_PLANS}
    layout = store_layout(plan, storage)
    footprint = plan_footprint(plan, layout)
    source = plans_source([plan], storage)
    mark = fingerprint(source)
    queries = workspace_queries(kernels["registry.c"].decode())
    generated = {
        "Makefile": _makefile(compilation),
        "README.md": _readme(plan, layout, footprint, compilation, provenance),
        "plan.c": source,
        "plan_addresses.h": addresses_header(plan, layout, training),
        "plan_values.c": values_source(plan, workspace_bytes, queries, mark, training.rates),
    }
    files = {
        "LICENSE": LICENSE.read_bytes(),
        "training.bin": training_file(plan, training, mark),
        **{name: text.encode() for name, text in generated.items()},
        **{name: (TEMPLATES / name).read_bytes() for name in _VERBATIM},
        **{f"kernels/{name}": text for name, text in kernels.items()},
        **{f"executor/{name}": text for name, text in executor.items()},
    }
    return Project(dict(sorted(files.items())), layout, footprint)


class _Template(string.Template):
    """Template with ``%%`` as its delimiter, since makefiles use the dollar sign."""

    delimiter = "%%"


def _makefile(compilation: Compilation) -> str:
    board = "make BUILD=build-arm CC=arm-none-eabi-gcc CFLAGS='-Os -mcpu=cortex-m4' objects"
    if compilation.board is not None:
        compiler, flags = compilation.board
        board = f"make BUILD=build-board CC={compiler} CFLAGS='{shlex.join(flags)}' objects"
    blas = ""
    if compilation.blas:
        blas = (
            "\n# Matrix products are OpenBLAS's, as in the build that was profiled: Debian's\n"
            "# libopenblas-dev. To avoid it, profile with matmul: in-tree, and solve again.\n"
            "# Run with OPENBLAS_NUM_THREADS=1: the plan is for one thread.\n"
            "CBLAS_SGEMM = cblas_sgemm\n"
            "BLAS = -DJW_CBLAS -DJW_CBLAS_SGEMM=$(CBLAS_SGEMM)\n"
        )
    return _filled(
        "Makefile",
        board=board,
        flags_from=compilation.source,
        cflags=shlex.join(compilation.flags),
        required=shlex.join(KERNEL_FLAGS),
        blas=blas,
        libraries="-lopenblas -lm" if compilation.blas else "-lm",
    )


def _readme(
    plan: ExecutionPlan,
    layout: StoreLayout,
    footprint: PlanFootprint,
    compilation: Compilation,
    provenance: Provenance,
) -> str:
    return _filled(
        "README.md",
        network=provenance.network,
        schedule=provenance.schedule,
        costs=textwrap.fill(provenance.costs, _COLUMNS),
        flags_from=textwrap.fill(compilation.source, _COLUMNS),
        needs=_BLAS_NEEDED if compilation.blas else "",
        arena=f"{plan.arena_bytes:,}",
        ram=f"{footprint.ram_bytes:,}",
        watched=f"{footprint.watched_bytes:,}",
        executor=f"{EXECUTOR_BYTES:,}",
        flash=f"{footprint.flash_bytes:,}",
        storage=_storage_words(plan, layout),
        recipe=_recipe(plan),
    )


_BLAS_NEEDED = """\
Matrix products are OpenBLAS's, as in the build that was profiled: install Debian's
`libopenblas-dev` first.

"""


def _storage_words(plan: ExecutionPlan, layout: StoreLayout) -> str:
    if not plan.pages:
        return "none: this plan does not page"
    erased = (
        f", erased in blocks of {layout.erase_block_bytes:,}" if layout.erase_block_bytes else ""
    )
    return (
        f"{layout.least_scratch_bytes:,} at least, in pages of {layout.page_bytes:,}{erased};"
        f" {expected_written_bytes(plan, layout):,} are written in a step"
        + (", as expected of tensors without their zeros" if plan.packed_bytes else "")
    )


def _recipe(plan: ExecutionPlan) -> str:
    if not plan.pages:
        return _RECIPE
    return "".join((_OPEN_STORAGE, _FREEZE if plan.is_frozen else "", _PAGING_RECIPE))


_RECIPE = """\
static unsigned char arena[JW_ARENA_BYTES] __attribute__((aligned(64)));
jw_executor executor = {.plan = jw_plans[0], .arena = arena};
const char *error = jw_executor_begin(&executor);
/* Copy initial values to arena + JW_RAM_...; for every step, inputs to arena + JW_INPUT_... */
error = jw_executor_step(&executor, false);
if (!error) error = jw_executor_afterwards(&executor);
/* The loss is at arena + JW_LOSS. */"""

_OPEN_STORAGE = """\
static unsigned char arena[JW_ARENA_BYTES] __attribute__((aligned(64)));
static jw_store store;
const char *error = jw_store_open(&store, jw_plans[0], &your_medium);
jw_executor executor = {.plan = jw_plans[0], .arena = arena, .store = &store};
error = jw_executor_begin(&executor);
"""

_FREEZE = """\
error = jw_store_begin_frozen(&store, key); /* the key names the values */
/* If store.is_frozen, read them with jw_store_verify_frozen and jw_store_verify_rows, to find out
   whether something else has overwritten them. Then, unless store.is_frozen: */
/* Copy what no step changes to the arena and call jw_store_freeze(&store, JW_FROZEN_..., ...), or
   jw_store_keep_rows(&store, JW_TABLE_..., ...) for frozen tables: those last, in order. */
"""

_PAGING_RECIPE = """\
/* Copy initial values to arena + JW_RAM_..., call jw_store_keep(&store, JW_KEPT_..., ...), or of
   tables jw_store_keep_rows(&store, JW_TABLE_..., ...). */
error = jw_store_complete(&store); /* or jw_store_recover and jw_store_fetch: see main.c */
/* For every step, copy the inputs to arena + JW_INPUT_... */
if (!(error = jw_executor_step(&executor, false))) error = jw_executor_afterwards(&executor);
/* The loss is at arena + JW_LOSS. After an error, the last complete step is still stored. */"""


def _filled(template: str, **values: str) -> str:
    return _Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
