"""Exported schedules: a C project that trains, and a trace."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cli
from devices.description import Storage, load_description
from devices.operation import SIGNATURES
from devices.quantities import Slices
from networks.data import generated_batches
from networks.models import build_model
from networks.training import training_step, with_parameters_in_storage
from networks.training.initial import initial_values
from networks.training.selection import select_trained
from profiler.building.sources import KERNELS, read_sources, sources_hash
from profiler.building.store_layout import store_layout
from profiler.building.toolchain import KERNEL_FLAGS
from replay.export.directory import write_project
from replay.export.export import Compilation, Provenance, c_project
from replay.export.footprint import EXECUTOR_BYTES, plan_footprint
from replay.export.project import Updates, training_data
from replay.export.tables import TrainingData, addresses_header, workspace_queries
from replay.lowering.lowering import lower
from solver.files.solved import write_solved
from solver.problem.schedule import Compute, PageIn, PageOut
from tests.support.graphs.schedules import by_rule, costed
from tests.support.graphs.solved import FLAGS, Solved, solved
from tests.support.networks.training import execute, small_lookups
from tests.support.onboard.kernels import Array, KernelLibrary, compile_library, openblas
from tests.support.paths import REFERENCES

STRICT = "WARNINGS=-Wall -Wextra -Wpedantic -Werror"
BATCHES = 8


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    directory = tmp_path_factory.mktemp("kernels")
    return KernelLibrary(compile_library(directory, "in-tree", FLAGS))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, library: KernelLibrary) -> Solved:
    case = solved(tmp_path_factory.mktemp("digits"), library, "digits", 0.58)
    actions = case.schedule.actions
    computed = [each.op for each in actions if isinstance(each, Compute)]
    assert len(computed) > len(set(computed)), "nothing is recomputed"
    assert any(isinstance(each, PageOut) for each in actions)
    assert any(isinstance(each, PageIn) for each in actions)
    return case


def export(case: Solved, *options: str) -> int:
    with contextlib.chdir(case.directory):
        return cli.main(["export", "--schedule", case.path.name, "--format", "c", *options])


@pytest.fixture(scope="module")
def project(digits: Solved) -> Path:
    assert export(digits, "--out", "project") == 0
    directory = digits.directory / "project"
    make(directory, STRICT)
    return directory


def make(directory: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["make", "-j2", "-C", str(directory), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def make_like(built: Path, directory: Path) -> None:
    copy_objects(built, directory)
    make(directory, STRICT)


def copy_objects(built: Path, directory: Path) -> None:
    """Copy the objects of kernels and executor, newer than their sources, to save compiling."""
    for part in ("kernels", "executor"):
        source, target = built / "build" / part, directory / "build" / part
        shutil.copytree(source, target, copy_function=shutil.copyfile)


def train(directory: Path, steps: int, storage: Path) -> tuple[list[str], dict[str, str]]:
    """The printed line of every step, and the checksum of every value after the last step."""
    done = subprocess.run(
        ["./train", str(steps), "training.bin", str(storage)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    checksums = (line.split("  ") for line in lines if not line.startswith("step"))
    return [line for line in lines if line.startswith("step")], {n: c for c, n in checksums}


def loss_bits(line: str) -> str:
    """The bits of the loss in a step's line."""
    (bits,) = re.findall(r"\(([0-9a-f]{8})\)", line)
    return str(bits)


def losses(lines: list[str]) -> list[float]:
    return [float(line.split()[3]) for line in lines]


# --- the same bits --------------------------------------------------------------------------------


def checksum(value: Array) -> str:
    """Checksum as ``executor/checksum.h`` defines it."""
    words = np.ascontiguousarray(value).view(np.uint32).ravel().tolist()
    lanes = [0x811C9DC5 ^ lane for lane in range(4)]
    for index, word in enumerate(words):
        lanes[index % 4] = (lanes[index % 4] ^ word) * 0x01000193 % 2**32
    total = 0x811C9DC5 ^ len(words)
    for lane in lanes:
        total = (total ^ lane) * 0x01000193 % 2**32
    return f"{total:08x}"


def unscheduled_steps(
    case: Solved, library: KernelLibrary, count: int
) -> list[Mapping[tuple[str, str], Array]]:
    """Values observed in each step when every tensor has a buffer of its own.

    It uses neither the executor nor the plan, except for the names of the observed values.
    """
    step, plan = case.step, case.plan
    values: dict[str, Array] = dict(initial_values(step, 0))
    batches = generated_batches(step, BATCHES * step.batch, 0)
    updates = {op.reads[0]: op.reads[1] for op in step.ops if ".update" in op.name}
    seen: list[Mapping[tuple[str, str], Array]] = []
    for number in range(count):
        start = {**values, **batches.batch(number % BATCHES)}
        made = execute(step, library, start, in_place=True)
        values.update({kept.tensor: made[kept.result] for kept in plan.kept})
        observed: dict[tuple[str, str], Array] = {}
        for probe in plan.probes:
            match probe.what:
                case "gradient":
                    value = made[updates[probe.tensor]]
                case "loss":
                    value = made[probe.tensor]
                case _:
                    value = values[probe.tensor]
            observed[probe.tensor, probe.what] = value
        seen.append(observed)
    return seen


def assert_same_bits(
    case: Solved, library: KernelLibrary, directory: Path, storage: Path, steps: int
) -> None:
    lines, checksums = train(directory, steps, storage)
    expected = unscheduled_steps(case, library, steps)
    for line, observed in zip(lines, expected, strict=True):
        (loss,) = (value for (_, what), value in observed.items() if what == "loss")
        assert int(loss_bits(line), 16) == int(loss.view(np.uint32)[0])
    assert checksums == {f"{what} {name}": checksum(v) for (name, what), v in expected[-1].items()}


@pytest.mark.slow
def test_the_example_trains_bit_for_bit_as_the_unscheduled_step(
    digits: Solved, project: Path, library: KernelLibrary, tmp_path: Path
) -> None:
    assert_same_bits(digits, library, project, tmp_path / "storage.bin", BATCHES + 2)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_clang_compiles_the_project_without_a_warning(project: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(project, tmp_path / "copy", ignore=shutil.ignore_patterns("build*"))
    make(copy, "CC=clang", STRICT)
    assert losses(train(copy, 1, tmp_path / "storage.bin")[0])


@pytest.mark.slow
def test_a_run_continues_where_the_last_one_ended(project: Path, tmp_path: Path) -> None:
    whole, after_whole = train(project, 5, tmp_path / "whole.bin")
    first, _ = train(project, 2, tmp_path / "parts.bin")
    second, after_parts = train(project, 3, tmp_path / "parts.bin")
    assert first + second == whole
    assert after_parts == after_whole


FAILING_READ = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int calls;

ssize_t pread64(int file, void *memory, size_t bytes, off64_t offset) {
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    if (calls++ == atoi(getenv("FAILING_READ"))) {
        errno = EIO;
        return -1;
    }
    return real(file, memory, bytes, offset);
}
"""


@pytest.mark.slow
def test_training_does_not_begin_anew_where_the_last_step_cannot_be_read(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.c").write_text(FAILING_READ)
    shim = tmp_path / "failing.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(shim), str(tmp_path / "failing.c"), "-ldl"], check=True
    )
    whole, _ = train(project, 3, tmp_path / "whole.bin")
    first, _ = train(project, 2, tmp_path / "parts.bin")
    with monkeypatch.context() as failing:
        failing.setenv("LD_PRELOAD", str(shim))
        failing.setenv("FAILING_READ", "8")  # after the records of eight parts, the newest again
        with pytest.raises(subprocess.CalledProcessError) as failed:
            train(project, 1, tmp_path / "parts.bin")
    assert "cannot be read: " in failed.value.stderr
    second, _ = train(project, 1, tmp_path / "parts.bin")
    assert first + second == whole


@pytest.mark.slow
def test_parameters_whose_home_is_storage_are_paged(
    library: KernelLibrary, project: Path, tmp_path: Path
) -> None:
    case = solved(tmp_path, library, "digits", 0.7, parameters_in="storage")
    assert any(kept.address is None for kept in case.plan.kept)
    assert export(case, "--out", "project") == 0
    make_like(project, tmp_path / "project")
    assert_same_bits(case, library, tmp_path / "project", tmp_path / "storage.bin", 3)


@pytest.mark.slow
def test_a_schedule_in_slices_trains_as_whole_layers_do(
    library: KernelLibrary, project: Path, tmp_path: Path
) -> None:
    """Each step has the loss of the project with whole layers, which has trained as well."""
    slices = Slices(512, 1024)
    case = solved(tmp_path, library, "digits", 0.7, parameters_in="storage", slices=slices)
    assert {op.spec.family for op in case.step.ops} >= {"conv2d_block", "depthwise_part"}
    assert any(isinstance(each, PageIn) for each in case.schedule.actions)
    assert export(case, "--out", "project") == 0
    make_like(project, tmp_path / "project")
    assert_same_bits(case, library, tmp_path / "project", tmp_path / "storage.bin", 3)
    in_slices, _ = train(tmp_path / "project", 3, tmp_path / "slices.bin")
    whole, _ = train(project, 3, tmp_path / "whole.bin")
    assert [loss_bits(line) for line in in_slices] == [loss_bits(line) for line in whole]


@pytest.mark.slow
def test_rows_of_a_table_are_paged(library: KernelLibrary, project: Path, tmp_path: Path) -> None:
    """The example changes a table in storage as steps do that have all of it in RAM."""
    in_ram = training_step(small_lookups())
    step = with_parameters_in_storage(in_ram)
    workspace = {spec: library.workspace_bytes(spec) for spec in step.distinct_specs}
    graph = costed(step, workspace)
    plan = lower(step, graph, by_rule(graph, 1.05), workspace)
    assert plan.stored_tables
    batches = generated_batches(in_ram, BATCHES * step.batch, 0)
    data = TrainingData(initial_values(step, 0), [batches.batch(n) for n in range(BATCHES)])
    made = c_project(
        plan,
        Storage(medium="disk", path=".", page_bytes=512),
        workspace,
        data,
        Compilation(FLAGS, "Flags of a test."),
        Provenance("small.json", step.title, "Made up."),
    )
    directory = tmp_path / "project"
    write_project(made.files, directory)
    make_like(project, directory)
    arm = ("BUILD=build-arm", "CC=arm-none-eabi-gcc", "CFLAGS=-Os -mcpu=cortex-m4")
    make(directory, *arm, "build-arm/plan.o")
    plan_object = directory / "build-arm" / "plan.o"
    assert made.footprint.flash_bytes == section_bytes(plan_object, ".rodata")
    assert made.footprint.ram_bytes == section_bytes(plan_object, ".bss")
    train(directory, 2, tmp_path / "storage.bin")
    lines, checksums = train(directory, 2, tmp_path / "storage.bin")  # continues
    values: dict[str, Array] = dict(data.initial)
    for batch in data.batches[:4]:
        made_by_step = execute(in_ram, library, {**values, **batch}, in_place=True)
        values.update({kept.tensor: made_by_step[kept.result] for kept in plan.kept})
    assert int(loss_bits(lines[-1]), 16) == int(made_by_step["loss.loss"].view(np.uint32)[0])
    for kept in plan.kept:
        if kept.tensor != "embed.table":
            assert checksums[f"parameter {kept.tensor}"] == checksum(values[kept.tensor])


@pytest.mark.slow
def test_frozen_values_are_stored_once(
    library: KernelLibrary, project: Path, tmp_path: Path
) -> None:
    """A second start finds them; one with other values replaces them and begins again."""
    network = small_lookups()
    select_trained(network, ["head"])
    step = with_parameters_in_storage(training_step(network))
    workspace = {spec: library.workspace_bytes(spec) for spec in step.distinct_specs}
    graph = costed(step, workspace)
    plan = lower(step, graph, by_rule(graph, 1.05), workspace)
    assert plan.frozen
    assert plan.frozen_tables
    batches = generated_batches(step, BATCHES * step.batch, 0)
    storage = Storage(medium="disk", path=".", page_bytes=512)
    directory = tmp_path / "project"
    for seed in (0, 1):
        data = TrainingData(initial_values(step, seed), [batches.batch(0)])
        made = c_project(
            plan,
            storage,
            workspace,
            data,
            Compilation(FLAGS, "Flags of a test."),
            Provenance("small.json", step.title, "Made up."),
        )
        assert b"jw_store_begin_frozen" in made.files["README.md"]
        write_project(made.files, directory)
        if not seed:
            make_like(project, directory)
        stored = tmp_path / "storage.bin"
        first, _ = train(directory, 2, stored)
        frozen = stored.read_bytes()[: made.layout.frozen_bytes]
        second, checksums = train(directory, 1, stored)
        assert [line.split()[1] for line in (*first, *second)] == ["1", "2", "3"]
        assert stored.read_bytes()[: made.layout.frozen_bytes] == frozen
        values: dict[str, Array] = dict(data.initial)
        in_ram = training_step(network)
        for _ in range(3):
            made_by_step = execute(in_ram, library, {**values, **batches.batch(0)}, in_place=True)
            values.update({kept.tensor: made_by_step[kept.result] for kept in plan.kept})
        for kept in plan.kept:
            assert checksums[f"parameter {kept.tensor}"] == checksum(values[kept.tensor])
        place = [*made.layout.frozen_offsets, *made.layout.table_offsets][0]
        with stored.open("r+b") as storage_file:
            storage_file.seek(place)
            storage_file.write(bytes([frozen[place] ^ 1]))
        third, _ = train(directory, 1, stored)
        assert [line.split()[1] for line in third] == ["4"]
        assert stored.read_bytes()[place] == frozen[place]
    arm = ("BUILD=build-arm", "CC=arm-none-eabi-gcc", "CFLAGS=-Os -mcpu=cortex-m4")
    make(directory, *arm, "build-arm/plan.o")
    plan_object = directory / "build-arm" / "plan.o"
    assert made.footprint.flash_bytes == section_bytes(plan_object, ".rodata")
    assert made.footprint.ram_bytes == section_bytes(plan_object, ".bss")


@pytest.mark.slow
def test_a_plan_that_does_not_page_needs_no_storage(
    library: KernelLibrary, project: Path, tmp_path: Path
) -> None:
    case = solved(tmp_path, library, "digits", 0.9, paging=False)
    assert not case.plan.pages
    assert export(case, "--out", "project") == 0
    make_like(project, tmp_path / "project")
    storage = tmp_path / "storage.bin"
    assert_same_bits(case, library, tmp_path / "project", storage, 2)
    assert not storage.exists()


@pytest.mark.slow
def test_data_of_another_plan_is_refused(project: Path, tmp_path: Path) -> None:
    wrong = bytearray((project / "training.bin").read_bytes())
    wrong[4] ^= 1
    (tmp_path / "wrong.bin").write_bytes(wrong)
    done = subprocess.run(
        ["./train", "1", tmp_path / "wrong.bin", tmp_path / "storage.bin"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is not for this plan" in done.stderr


@pytest.mark.slow
def test_the_program_names_a_kernel_that_needs_more_workspace_at_its_start(
    project: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(project, tmp_path / "copy", ignore=shutil.ignore_patterns("build*"))
    source = copy / "plan_values.c"
    text = source.read_text()
    smaller, count = re.subn(r'("block2\.pointwise\.conv\.forward", \w+, \d+), \d+', r"\1, 4", text)
    assert count == 1
    source.write_text(smaller)
    make_like(project, copy)
    done = subprocess.run(["./train"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("block2.pointwise.conv.forward: its kernel needs more workspace")
    assert "JW_SMALL_MEMORY=1" in done.stderr
    (copy / "build" / "main.o").unlink()
    make(copy, STRICT, "CFLAGS=-O1 -DJW_SMALL_MEMORY=1")  # small tiles have not helped, either
    done = subprocess.run(["./train"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "JW_SMALL_MEMORY" not in done.stderr
    assert "profile this machine, solve and export again" in done.stderr


@pytest.mark.slow
def test_matrix_products_use_a_blas_if_the_profile_did(
    digits: Solved, project: Path, tmp_path: Path
) -> None:
    path = digits.with_changed_origin(tmp_path, matmul="cblas", profile="elsewhere")
    blas = tmp_path / "blas"
    assert export(digits, "--schedule", str(path), "--out", str(blas)) == 0
    copy_objects(project, blas)
    for path in (blas / "build" / "kernels").glob("matmul*.o"):
        path.unlink()
    library = f"{openblas()} -Wl,-rpath,{openblas().parent} -lm"
    make(blas, STRICT, "CBLAS_SGEMM=scipy_cblas_sgemm", f"LDLIBS={library}")
    used = subprocess.run(["nm", "-u", blas / "train"], capture_output=True, text=True, check=True)
    assert "scipy_cblas_sgemm" in used.stdout
    ours, theirs = (
        losses(train(directory, 5, tmp_path / f"{directory.name}.bin")[0])
        for directory in (project, blas)
    )
    np.testing.assert_allclose(theirs, ours, rtol=1e-4)


# --- microcontrollers -----------------------------------------------------------------------------

ARM = ("CC=arm-none-eabi-gcc", "CFLAGS=-Os -mcpu=cortex-m4 -mthumb", "BUILD=build-arm")


@pytest.fixture(scope="module")
def arm_objects(project: Path) -> Path:
    make(project, *ARM, STRICT, "objects")
    return project / "build-arm"


def section_bytes(path: Path, *prefixes: str) -> int:
    listed = subprocess.run(
        ["arm-none-eabi-size", "-A", str(path)], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listed.stdout.splitlines() if line.startswith("."))
    return sum(int(size) for name, size, *_ in rows if name.startswith(prefixes))


@pytest.mark.slow
def test_a_plan_takes_the_stated_memory_of_a_microcontroller(
    digits: Solved, project: Path, arm_objects: Path
) -> None:
    plan = digits.plan
    layout = store_layout(plan, Storage(medium="disk", path=".", page_bytes=512))
    footprint = plan_footprint(plan, layout)
    assert footprint.flash_bytes == section_bytes(arm_objects / "plan.o", ".rodata")
    assert footprint.ram_bytes == section_bytes(arm_objects / "plan.o", ".bss")
    assert section_bytes(arm_objects / "plan.o", ".data") == 0
    readme = (project / "README.md").read_text()
    for figure in (plan.arena_bytes, footprint.ram_bytes, footprint.flash_bytes):
        assert f"{figure:,}" in readme


@pytest.mark.slow
def test_executor_and_store_take_no_more_memory_than_stated(project: Path, tmp_path: Path) -> None:
    source = tmp_path / "state.c"
    source.write_text('#include "executor.h"\njw_executor executor;\njw_store store;\n')
    include = [word for name in ("executor", "kernels") for word in ("-I", str(project / name))]
    made = tmp_path / "state.o"
    compiler = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", *include]
    subprocess.run([*compiler, "-c", str(source), "-o", str(made)], check=True)
    assert 0 < section_bytes(made, ".bss") <= EXECUTOR_BYTES


@pytest.mark.slow
def test_the_executor_neither_allocates_nor_prints(arm_objects: Path) -> None:
    listed = subprocess.run(
        ["arm-none-eabi-nm", "-u", *map(str, (arm_objects / "executor").glob("*.o"))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    used = set(re.findall(r"U (\w+)", listed.stdout))
    outside = {name for name in used if not name.startswith(("jw_", "__aeabi_"))}
    assert outside <= {"memcpy", "memmove", "memset"}


def test_every_workspace_query_of_the_kernels_is_known(library: KernelLibrary) -> None:
    queries = workspace_queries((KERNELS / "registry.c").read_text())
    having = {entry.kind.decode() for entry in library.table if entry.workspace_bytes}
    assert set(queries) == having
    assert having < set(SIGNATURES)


# --- the directory --------------------------------------------------------------------------------


@pytest.mark.slow
def test_addresses_are_those_of_the_plan(digits: Solved, project: Path) -> None:
    constants = dict(re.findall(r"#define (\w+) (\d+)", (project / "plan_addresses.h").read_text()))
    plan = digits.plan
    assert int(constants["JW_ARENA_BYTES"]) == plan.arena_bytes
    assert int(constants["JW_INPUT_IMAGE"]) == plan.inputs["image"].address
    assert int(constants["JW_INPUT_LABELS_BYTES"]) == 2 * 4
    names = [kept.tensor for kept in plan.kept]
    number = int(constants["JW_KEPT_STEM_CONV_WEIGHT"])
    assert names[number] == "stem.conv.weight"
    assert int(constants["JW_RAM_STEM_CONV_WEIGHT"]) == plan.kept[number].address


def test_addresses_state_what_stands_for_true_and_false(library: KernelLibrary) -> None:
    step = build_model(str(REFERENCES / "exported" / "compared.pt2"))
    workspace = {spec: library.workspace_bytes(spec) for spec in step.distinct_specs}
    graph = costed(step, workspace)
    plan = lower(step, graph, by_rule(graph, 1.05), workspace)
    made = c_project(
        plan,
        Storage(medium="disk", path=".", page_bytes=512),
        workspace,
        training_data(step, 0, Updates()),
        Compilation(FLAGS, "Flags of a test."),
        Provenance("small.json", step.title, "Made up."),
    )
    text = made.files["plan_addresses.h"]
    assert b"seen: float32 [3, 5]; 0 if true, -infinity if false" in text


@pytest.mark.parametrize("names", [("image_bytes", "image"), ("image", "image_bytes")])
def test_no_address_is_defined_twice(digits: Solved, names: tuple[str, str]) -> None:
    """A constant's size has a name of its own, whatever the inputs are called."""
    data = training_data(digits.step, 0, Updates())
    blocks = digits.plan.inputs.values()
    plan = replace(digits.plan, inputs=dict(zip(names, blocks, strict=True)))
    batch = dict(zip(names, data.batches[0].values(), strict=True))
    layout = store_layout(plan, Storage(medium="disk", path=".", page_bytes=512))
    text = addresses_header(plan, layout, replace(data, batches=[batch]))
    defined = re.findall(r"#define (\w+) ", text)
    assert len(defined) == len(set(defined))


@pytest.mark.slow
def test_an_export_is_reproducible_and_names_nothing_of_this_computer(
    digits: Solved, project: Path
) -> None:
    assert export(digits, "--out", "again") == 0
    again = digits.directory / "again"
    here = (str(digits.directory), str(KERNELS), subprocess.getoutput("uname -n"))
    for path in sorted(again.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            assert content == (project / path.relative_to(again)).read_bytes()
            assert not any(word.encode() in content for word in here), path
    assert {path.name for path in again.iterdir()} >= {"LICENSE", "README.md", "Makefile", "main.c"}


def test_files_that_the_user_added_or_changed_are_not_overwritten(
    digits: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(digits, "--out", "mine") == 0
    mine = digits.directory / "mine"
    (mine / "driver.c").write_text("/* my own */\n")
    assert export(digits, "--out", "mine", "--seed", "1") == 0
    assert (mine / "driver.c").read_text() == "/* my own */\n"
    (mine / "storage_file.c").write_text("/* my driver */\n")
    capsys.readouterr()
    assert export(digits, "--out", "mine") == 2
    assert "storage_file.c: has changed since it was exported" in capsys.readouterr().err
    assert (mine / "storage_file.c").read_text() == "/* my driver */\n"


def test_an_empty_working_directory_becomes_the_project(
    digits: Solved, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"main.c": b"int main(void) { return 0; }\n"}
    empty = digits.directory / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    write_project(files, Path())
    assert (empty / "main.c").read_bytes() == files["main.c"]
    assert {path.name for path in Path().iterdir()} == {"main.c", "export.json"}
    write_project({**files, "Makefile": b"all:\n"}, Path())
    assert Path("Makefile").exists()


def test_a_directory_that_is_no_export_is_refused(
    digits: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    other = digits.directory / "other"
    other.mkdir()
    (other / "README.md").write_text("something else\n")
    assert export(digits, "--out", "other") == 2
    assert "name another directory with --out" in capsys.readouterr().err
    assert [path.name for path in other.iterdir()] == ["README.md"]


def test_an_interrupted_export_is_completed_by_the_next(digits: Solved) -> None:
    assert export(digits, "--out", "cut") == 0
    cut = digits.directory / "cut"
    assert export(digits, "--out", "new", "--seed", "5") == 0
    # The state that an interruption in the middle of the next export would leave.
    shutil.copy(digits.directory / "new" / "training.bin", cut / "training.bin")
    (cut / "plan.c").unlink()
    assert export(digits, "--out", "cut", "--seed", "5") == 0
    assert (cut / "plan.c").is_file()
    assert export(digits, "--out", "cut") == 0


# --- inputs of an export --------------------------------------------------------------------------


def test_json_names_every_file(digits: Solved, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(digits, "--out", "listed", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    directory = digits.directory / document["directory"]
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert found == {*document["files"], "export.json"}
    assert document["arena_bytes"] == digits.schedule.arena_bytes


@pytest.mark.slow
def test_an_export_has_the_compiler_flags_of_the_profile(project: Path) -> None:
    makefile = (project / "Makefile").read_text()
    assert f"CFLAGS = {' '.join(FLAGS)}\n" in makefile
    assert f"BITS = {' '.join(KERNEL_FLAGS)}\n" in makefile


def test_an_export_for_a_board_has_its_pages_and_its_compiler(
    digits: Solved, tmp_path: Path
) -> None:
    flags = (*KERNEL_FLAGS, *load_description("emulated-m0-flash").toolchain.flags)
    kernels = sources_hash(read_sources(KERNELS), flags)
    path = digits.with_changed_origin(tmp_path, kernels_sha256=kernels, profile="elsewhere")
    words = ("--schedule", str(path), "--out", "m0", "--device", "emulated-m0-flash")
    assert export(digits, *words) == 0
    directory = digits.directory / "m0"
    assert re.search(r"\.erase_block_bytes = [1-9]", (directory / "plan.c").read_text())
    makefile = (directory / "Makefile").read_text()
    assert "CC=arm-none-eabi-gcc CFLAGS='-O" in makefile
    assert "-DJW_SMALL_MEMORY=1" in makefile


def test_a_microcontroller_with_other_flags_than_the_profiled_is_refused(
    digits: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its kernels may need more workspace than the plan has."""
    assert export(digits, "--out", "none", "--device", "emulated-m0-flash") == 2
    error = capsys.readouterr().err
    assert "measured on bench with other kernels or other compiler flags" in error
    assert "measure emulated-m0-flash and solve again" in error
    assert not (digits.directory / "none").exists()


def test_a_graph_of_unknown_origin_is_refused(
    digits: Solved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = digits.with_origin(tmp_path, None)
    assert export(digits, "--schedule", str(path), "--out", "none") == 2
    assert "does not say which network" in capsys.readouterr().err
    assert not (digits.directory / "none").exists()


def test_kernels_that_differ_from_the_measured_ones_are_refused(
    digits: Solved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = digits.with_changed_origin(tmp_path, kernels_sha256="0" * 64)
    assert export(digits, "--schedule", str(path), "--out", "none") == 2
    assert "measure bench again if its kernels have changed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_for_a_microcontroller_runs_on_this_computer_too(tmp_path: Path) -> None:
    """Without --device, and with no more workspace than the microcontroller's kernels need."""
    flags = ("-O1", "-DJW_SMALL_MEMORY=1")
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    library = KernelLibrary(compile_library(kernels, "in-tree", flags))
    compiler = "arm-none-eabi-gcc (15:14.2.rel1-1) 14.2.1 20241119"
    case = solved(tmp_path, library, "digits", 0.58, compiler=compiler, flags=flags)
    assert export(case, "--out", "project") == 0
    make(tmp_path / "project", STRICT)
    assert len(losses(train(tmp_path / "project", 2, tmp_path / "storage.bin")[0])) == 2


def test_an_energy_source_that_is_not_the_profiles_is_refused(
    digits: Solved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = digits.graph.model_copy(update={"energy_source": "measured"})
    stated = {"energy_source": "measured", "graph_sha256": graph.sha256}
    write_solved(tmp_path / "changed.json", graph, digits.schedule.model_copy(update=stated))
    assert export(digits, "--schedule", str(tmp_path / "changed.json"), "--out", "none") == 2
    assert "profile 'bench' has estimated" in capsys.readouterr().err


def test_a_damaged_profile_is_refused(
    digits: Solved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert digits.graph.origin is not None
    damaged = tmp_path / "profiles" / f"{digits.graph.origin.profile}.yaml"
    damaged.parent.mkdir()
    damaged.write_text("schema: device-profile/1\n")
    assert export(digits, "--results", str(tmp_path), "--out", "none") == 2
    assert f"error: {damaged}: " in capsys.readouterr().err


def test_an_export_from_published_costs_is_refused(
    digits: Solved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = digits.with_changed_origin(tmp_path, kernels_sha256=None, profile="elsewhere")
    assert export(digits, "--schedule", str(path), "--out", "none") == 2
    assert "published figures" in capsys.readouterr().err


def test_a_trace_is_written_to_the_requested_directory(digits: Solved) -> None:
    assert cli.main(
        [
            "export", "--schedule", str(digits.path), "--format", "perfetto",
            "--out", str(digits.directory / "traces"),
        ]
    ) == 0  # fmt: skip
    trace = json.loads((digits.directory / "traces" / "small.trace.json").read_text())
    assert any(event["name"] == "stem.conv.forward" for event in trace["traceEvents"])


@pytest.mark.slow
def test_the_example_follows_the_course_of_the_learning_rate(
    digits: Solved, project: Path, tmp_path: Path
) -> None:
    """The first step of a warm-up over two steps has half of the rate."""
    half = str(0.5 * digits.step.learning_rate)
    course, constant = digits.directory / "course", digits.directory / "half"
    words = ("--rate-schedule", "warm-up:2", "--steps", "2")
    assert export(digits, *words, "--out", course.name) == 0
    assert export(digits, "--learning-rate", half, "--out", constant.name) == 0
    found = []
    for directory in (course, constant, project):
        if directory != project:
            make_like(project, directory)
        found.append(losses(train(directory, 3, tmp_path / directory.name)[0]))
    assert found[0][:2] == found[1][:2]
    assert found[0][1] != found[2][1]
    assert found[0][2] != found[1][2]


def test_a_course_of_the_learning_rate_needs_a_number_of_steps(
    digits: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(digits, "--rate-schedule", "cosine", "--out", "none") == 2
    assert "--rate-schedule and --steps belong together" in capsys.readouterr().err


def test_the_example_has_the_numbers_of_the_optimizer_that_were_given(
    digits: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--learning-rate", "0.5", "--weight-decay", "0.25")
    assert export(digits, *words, "--out", "numbers") == 0
    plan = (digits.directory / "numbers" / "plan.c").read_text()
    assert "learning_rate 0.5, weight_decay 0.25" in plan
    assert export(digits, "--momentum", "0.5", "--out", "none") == 2
    assert "the optimizer sgd has no momentum" in capsys.readouterr().err
