"""Replays by the Linux harness: the store file, asynchronous transfers, and the memory limit."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from devices.claims.scratch import ScratchDirectory
from devices.description import NativeToolchain, Storage
from devices.operation import OpSpec
from devices.plan import (
    Action,
    ArenaRange,
    Compute,
    ExecutionPlan,
    Frozen,
    Kept,
    PageIn,
    PageOut,
    Poison,
    Probe,
)
from profiler.building.plan_source import plans_source
from profiler.building.store_layout import store_layout
from profiler.building.toolchain import HarnessBuilder
from profiler.script.records import parse_samples
from profiler.transports.local import LocalTransport
from replay.running.records import ReplayRecords, parse_replay
from tests.support.onboard.executor import KERNELS, bumped, initial, keeping, words
from tests.support.paths import NATIVE

FAULTS = NATIVE / "storage_faults.c"
PAGE = 4096
STORAGE = Storage(medium="disk", path="/unused", page_bytes=PAGE)
STORE = ".joulewright-store"

# relu.forward adds one to every word; tanh.forward allocates memory and writes whether it got any;
# sigmoid.forward writes beyond its operand; flatten.forward allocates all available memory;
# sgd.update writes its learning rate.
_KERNELS = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "kernels.h"

void jw_relu_forward(const jw_call *call) {
    const uint32_t *before = call->reads[0];
    uint32_t *after = call->writes[0];
    for (int32_t i = 0; i < call->attributes[0]; i++) {
        after[i] = before[i] + 1;
    }
}

void jw_tanh_forward(const jw_call *call) {
    uint32_t *got = call->writes[0];
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char *allocated = malloc(1 << 20);
    got[0] = mapped != MAP_FAILED;
    got[1] = allocated != NULL;
}

void jw_sigmoid_forward(const jw_call *call) {
    memset(call->writes[0], 0, 4 * (size_t)call->attributes[0] + 4);
}

void jw_flatten(const jw_call *call) {
    (void)call;
    for (size_t bytes = 8192; bytes; bytes -= 16) {
        while (malloc(bytes)) {
        }
    }
}

void jw_sgd_update(const jw_call *call) {
    memcpy(call->writes[0], call->scalars, 4);
}

static void look(const jw_call *call) {
    jw_tanh_forward(call);
    const uint32_t *got = call->writes[0];
    if (got[0] && got[1]) {
        _exit(42);
    }
}

const jw_kernel jw_kernels[] = {{"tanh.forward", 1, 0, look, NULL}};
const size_t jw_kernel_count = 1;
const jw_kernel *jw_find_kernel(const char *kind) {
    return strcmp(kind, jw_kernels[0].kind) ? NULL : jw_kernels;
}
const char *const jw_matmul_name = "in-tree";
"""


def compute(kind: str, address: int, size: int) -> Action:
    spec = OpSpec.of(kind, elements=size // 4)
    return Action(Compute(kind, spec, (address,), (address,), None, {}))


LARGE = (1 << 20) + 12
"""Bytes of a tensor that exceeds the buffers and does not end at a page."""


def beside() -> ExecutionPlan:
    """A plan with transfers beside operations.

    A tensor is paged out, overwritten after that, and paged in at another place; the last page-out
    starts after all other actions.
    """
    x, y, end = ArenaRange(0, LARGE), ArenaRange(LARGE, LARGE), 2 * LARGE
    return ExecutionPlan(
        name="beside",
        arena_bytes=end + 64,
        inputs={"x": x},
        kept=(),
        actions=(
            compute("relu.forward", x.address, LARGE),
            Action(PageOut("x", x, 0, asynchronous=True)),
            compute("relu.forward", end, 64),
            Action(PageOut("short", ArenaRange(end, 64), 1, asynchronous=True)),
            Action(PageIn("x", y, 0, asynchronous=True)),
            Action(Poison(x), waits_for=1),
            Action(PageIn("short", ArenaRange(0, 64), 1), waits_for=2),
            Action(Probe("x", "loss", y), waits_for=3),
            Action(PageOut("last", ArenaRange(end, 64), 2, asynchronous=True)),
        ),
        slot_bytes=(LARGE, 64, 64),
    )


def hungry() -> ExecutionPlan:
    return ExecutionPlan("hungry", 64, {}, (), (compute("tanh.forward", 0, 64),))


def careless() -> ExecutionPlan:
    return ExecutionPlan("careless", 4096, {}, (), (compute("sigmoid.forward", 64, 4032),))


def greedy() -> ExecutionPlan:
    return ExecutionPlan("greedy", 64, {}, (), (compute("flatten.forward", 0, 64),))


def updating() -> ExecutionPlan:
    """A gradient that is made, read by its update and overwritten; the rate is the result."""
    gradient, rate = ArenaRange(0, 8), ArenaRange(64, 4)
    update = Compute("update", OpSpec.of("sgd.update", elements=1), (64, 0), (64,), None, RATE)
    return ExecutionPlan(
        name="updating",
        arena_bytes=128,
        inputs={},
        kept=(),
        actions=(
            compute("relu.forward", 0, 8),
            Action(Probe("weight", "gradient", gradient)),
            Action(update),
            compute("relu.forward", 0, 8),
            Action(Probe("loss", "loss", rate)),
        ),
    )


def frozen() -> ExecutionPlan:
    """A plan that pages in a frozen tensor, and keeps another one that it does not change."""
    place = ArenaRange(0, LARGE)
    return ExecutionPlan(
        name="frozen",
        arena_bytes=LARGE + 64,
        inputs={},
        kept=(Kept("kept", "kept", 64, LARGE, 0),),
        actions=(
            Action(PageIn("frozen", place, 0, "frozen")),
            Action(Probe("frozen", "loss", place)),
        ),
        afterwards=(Action(PageOut("kept", ArenaRange(LARGE, 64), 0)),),
        slot_bytes=(64,),
        frozen=(Frozen("frozen", LARGE),),
    )


RATE = {"learning_rate": 0.5, "weight_decay": 0.0}
PLANS = (
    keeping(sizes=(28, 5000, 100, 4, PAGE)),
    *(beside(), hungry(), careless(), greedy(), updating(), frozen()),
)
KEEPING, BESIDE, HUNGRY, CARELESS, GREEDY, UPDATING, FROZEN = range(7)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernels = tmp_path_factory.mktemp("kernels")
    for header in KERNELS.glob("*.h"):
        shutil.copy(header, kernels)
    (kernels / "kernels.c").write_text(_KERNELS)
    built = tmp_path_factory.mktemp("built") / "harness"
    toolchain = NativeToolchain(
        kind="native", compiler="cc", flags=("-O1", "-D_GNU_SOURCE"), matmul="in-tree"
    )
    with LocalTransport() as transport:
        builder = HarnessBuilder(transport, toolchain, kernels=kernels)
        harness = builder.build(plans_source(PLANS, STORAGE), timeout_s=900)
        shutil.copy(harness.path, built)
    return built


@dataclass(frozen=True)
class Done:
    code: int
    records: ReplayRecords
    text: str
    dumped: bytes
    errors: str


def script(plan: int, *lines: str, store: str | None = None) -> str:
    head = ["joulewright-plan 1", f"arena bytes={PLANS[plan].arena_bytes}"]
    opened = [] if store is None else [store]
    return "\n".join([*head, *opened, f"replay plan={plan}", *lines, "end\n"])


def start(
    program: Path,
    directory: Path,
    text: str,
    data: bytes = b"",
    *,
    options: Sequence[str] = (),
    **environment: str,
) -> subprocess.Popen[str]:
    directory.mkdir(exist_ok=True)
    (directory / "plan").write_text(text)
    (directory / "data").write_bytes(data)
    return subprocess.Popen(
        [program, "run", "plan", "results", "samples", "data", "dump", *options],
        cwd=directory,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    program: Path,
    directory: Path,
    text: str,
    data: bytes = b"",
    *,
    options: Sequence[str] = (),
    **environment: str,
) -> Done:
    with start(program, directory, text, data, options=options, **environment) as process:
        try:
            _, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    dump, results = directory / "dump", directory / "results"
    printed = results.read_text() if results.exists() else ""
    dumped = dump.read_bytes() if dump.exists() else b""
    return Done(process.returncode, parse_replay(printed), printed, dumped, errors)


def wait_until(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Wait for half a minute at most, and only as long as the process runs."""
    for _ in range(3000):
        assert process.poll() is None
        if happened():
            return
        time.sleep(0.01)
    pytest.fail("the awaited event did not happen within 30 s")


def has_printed(results: Path, word: str, times: int = 1) -> bool:
    return results.exists() and results.read_text().count(word) >= times


def store_line(directory: Path, plan: int = KEEPING, *, anew: bool = True) -> str:
    layout = store_layout(PLANS[plan], STORAGE)
    size, frozen_bytes = layout.frozen_bytes + 3 * layout.step_bytes, layout.frozen_bytes
    return f"store bytes={size} anew={int(anew)} frozen={frozen_bytes} directory={directory}"


def begun() -> tuple[list[str], bytes]:
    """Lines that load the initial values, and these values."""
    plan = PLANS[KEEPING]
    lines, data = [], b""
    for number in sorted(range(len(plan.kept)), key=lambda n: plan.kept[n].address is not None):
        kept = plan.kept[number]
        address = kept.address or 0
        lines += [
            f"load address={address} bytes={kept.bytes} at={len(data)}",
            f"keep kept={number} address={address}",
        ]
        data += initial(plan)[number]
    return [*lines, "commit"], data


def fetched(kept: Sequence[int] = range(len(PLANS[KEEPING].kept))) -> list[str]:
    sizes = [PLANS[KEEPING].kept[number].bytes for number in kept]
    return [
        line
        for number, size in zip(kept, sizes, strict=True)
        for line in (f"fetch kept={number} address=0", f"dump address=0 bytes={size}")
    ]


def trained(steps: int) -> list[str]:
    return [f"train id={step} watched=0" for step in range(steps)]


def all_bumped(by: int) -> bytes:
    return b"".join(bumped(value, by) for value in initial(PLANS[KEEPING]))


# --- consecutive runs ---------------------------------------------------------------------------


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk, and one on a file system that may lack direct access."""
    if request.param == "disk":
        yield tmp_path
        return
    with ScratchDirectory(Path("/dev/shm"), "jw-test-place-") as directory:
        yield directory.path


def test_a_run_recovers_the_last_step_of_the_run_before_it(
    program: Path, tmp_path: Path, place: Path
) -> None:
    lines, data = begun()
    text = script(KEEPING, *lines, *trained(5), "counters", store=store_line(place))
    first = run(program, tmp_path, text, data)
    assert (first.code, first.errors) == (0, "")
    assert len(first.records.results.windows) == 5
    assert first.records.results.is_direct is not None
    assert first.records.counters[0].steps == 5
    again = script(KEEPING, "recover", *fetched(), "forget", store=store_line(place, anew=False))
    second = run(program, tmp_path, again)
    assert (second.code, second.errors) == (0, "")
    assert second.records.recovered_step == 5
    assert second.dumped == all_bumped(5)
    assert not (place / STORE).exists()


def test_frozen_values_outlast_a_run_and_are_written_only_if_they_differ(
    program: Path, tmp_path: Path, faults: str
) -> None:
    layout = store_layout(PLANS[FROZEN], STORAGE)

    def bytes_out(key: int, value: bytes) -> int:
        start = [
            f"frozen key={key}",
            f"load address=0 bytes={LARGE} at=0",
            "freeze frozen=0 address=0",
        ]
        kept = [f"keep kept=0 address={LARGE}", "commit", "counters"]
        steps = ["train id=0 watched=1", "probes first=0", f"dump address=0 bytes={LARGE}"]
        text = script(FROZEN, *start, *kept, *steps, store=store_line(tmp_path, FROZEN))
        done = run(program, tmp_path, text, value, LD_PRELOAD=faults)
        assert (done.code, done.errors) == (0, "")
        assert done.dumped == value
        return done.records.counters[0].bytes_out - layout.step_bytes

    one, other = words(*range(LARGE // 4)), words(*range(1, LARGE // 4 + 1))
    assert bytes_out(1, one) > LARGE
    assert bytes_out(1, one) == 0
    assert bytes_out(2, other) > LARGE
    assert bytes_out(2, other) == 0


def test_a_run_does_not_begin_without_its_frozen_values(program: Path, tmp_path: Path) -> None:
    store = store_line(tmp_path, FROZEN)
    none = script(FROZEN, f"keep kept=0 address={LARGE}", store=store)
    done = run(program, tmp_path, none)
    assert (done.code, "frozen values must be written" in done.errors) == (7, True)
    wrong = run(program, tmp_path, script(FROZEN, "freeze frozen=1 address=0", store=store))
    assert "frozen is not a frozen tensor of this plan" in wrong.errors


def test_waiting_for_storage_counts_as_running_time(program: Path, tmp_path: Path) -> None:
    """Running time includes the work of the step's own transfers, and no other program's.

    Another program that runs during a transfer lengthens its span: one undisturbed step of several
    shows that the transfers are in the running time.
    """
    lines, data = begun()
    steps = ["train id=0 watched=1", "spans first=0"]
    actions = PLANS[KEEPING].actions
    transfers = [i for i, a in enumerate(actions) if isinstance(a.does, PageOut | PageIn)]
    assert len(transfers) == 4
    outside_s = []
    for number in range(8):
        directory = tmp_path / str(number)
        directory.mkdir()
        text = script(KEEPING, *lines, *steps, store=store_line(directory))
        done = run(program, directory, text, data)
        (window,) = done.records.results.windows
        (spans,) = done.records.spans.values()
        assert window.running_ns <= window.end_ns - window.start_ns
        outside_s.append(sum(spans[i].time_s for i in transfers) - 1e-9 * window.running_ns)
    assert min(outside_s) <= 1e-5  # for reading the clocks


def test_bytes_come_from_the_data_and_go_to_the_dump(program: Path, tmp_path: Path) -> None:
    lines = ["load address=4 bytes=8 at=4", "dump address=4 bytes=4", "dump address=8 bytes=4"]
    assert run(program, tmp_path, script(HUNGRY, *lines), words(1, 2, 3)).dumped == words(2, 3)
    short = run(program, tmp_path, script(HUNGRY, "load address=0 bytes=8 at=4"), words(1, 2))
    assert (short.code, "line 4: the plan's data end before that" in short.errors) == (2, True)


def test_gradients_are_returned_as_the_update_reads_them(program: Path, tmp_path: Path) -> None:
    begun = "load address=0 bytes=8 at=0"
    steps = ["train id=0 watched=0", "gradients", "train id=1 watched=0", "train id=2 watched=1"]
    done = run(program, tmp_path, script(UPDATING, begun, *steps), words(1, 2))
    assert (done.code, done.errors) == (0, "")
    assert done.dumped == words(4, 5)  # of the second step, before its last operation


def test_a_rate_holds_from_its_line_on(program: Path, tmp_path: Path) -> None:
    returned = "dump address=64 bytes=4"
    lines = ["train id=0 watched=0", returned, "rate learning_rate=3e800000"]
    lines += ["train id=1 watched=0", returned, "train id=2 watched=0", returned]
    done = run(program, tmp_path, script(UPDATING, *lines))
    assert (done.code, done.errors) == (0, "")
    assert struct.unpack("<3f", done.dumped) == (0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rate learning_rate=0.5", "learning_rate is not a number of eight hexadecimal digits"),
        ("after steps=-1", "steps is not a whole number in the allowed range"),
        ("load address=60 bytes=8 at=0", "address is not in the arena for that many bytes"),
        ("dump address=2 bytes=4", "address is not in the arena for that many bytes"),
        ("keep kept=0 address=0", "kept is not a tensor that this plan keeps in storage"),
        ("recover", "this plan keeps nothing in storage"),
        ("probes first=0", "first is past the last one"),
        ("replay plan=7", "plan is not a plan of this program"),
        ("commit", "a commit needs a `keep` before it"),
    ],
)
def test_an_invalid_line_is_refused(program: Path, tmp_path: Path, line: str, said: str) -> None:
    done = run(program, tmp_path, script(HUNGRY, line), b"\0" * 64)
    assert done.code in (2, 7)
    assert f"line 4: {said}" in done.errors


def test_a_plan_that_pages_fails_without_a_store(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path, script(KEEPING))
    assert done.code == 2
    assert "the plan pages, but there is no storage to page to" in done.errors


def test_a_run_that_is_killed_leaves_its_last_complete_step(program: Path, tmp_path: Path) -> None:
    lines, data = begun()
    text = script(KEEPING, *lines, *trained(100_000), store=store_line(tmp_path))
    results = tmp_path / "results"
    with start(program, tmp_path, text, data) as process:
        try:
            wait_until(process, lambda: has_printed(results, "window", 10))
        finally:
            process.send_signal(signal.SIGKILL)
    windows = results.read_text().count("\nwindow")
    again = script(KEEPING, "recover", *fetched(), store=store_line(tmp_path, anew=False))
    done = run(program, tmp_path, again)
    assert done.errors == ""
    step = done.records.recovered_step
    assert step is not None
    assert step >= windows
    assert done.dumped == all_bumped(step)


# --- failing storage ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("faults") / "storage_faults.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", str(FAULTS)]
    subprocess.run([*command, "-o", str(library), "-ldl"], check=True)
    return str(library)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (
            "pread",
            "short",
            r"slot \d+ at byte \d+ of the storage cannot be read: short read, \d+ of \d+",
        ),
        (
            "pwrite",
            "short",
            r"slot \d+ at byte \d+ of the storage cannot be written: short write, \d+ of \d+",
        ),
        ("pwrite", "full", r"slot \d+ at byte \d+ of .* cannot be written: No space left"),
    ],
)
def test_a_failed_transfer_stops_the_step_and_leaves_the_last_one_intact(
    program: Path, tmp_path: Path, faults: str, call: str, kind: str, said: str
) -> None:
    lines, data = begun()
    text = script(KEEPING, *lines, *trained(3), store=store_line(tmp_path))
    # The harness first reads three records; filling the file is one write, and each step
    # reads twice, and writes all tensors and a record.
    before = {"pread": 3 + 2 * 2, "pwrite": 1 + 6 * 3}[call]
    strike = {"FAULT_CALL": call, "FAULT_AT": str(before), "FAULT_KIND": kind}
    done = run(program, tmp_path, text, data, LD_PRELOAD=faults, **strike)
    assert done.code == 7
    assert re.search(rf"line \d+: action \d+: {said}", done.errors), done.errors
    assert len(done.records.results.windows) == 2
    again = script(KEEPING, "recover", *fetched(), store=store_line(tmp_path, anew=False))
    recovered = run(program, tmp_path, again)
    assert recovered.records.recovered_step == 2
    assert recovered.dumped == all_bumped(2)


@pytest.mark.parametrize("plan", [KEEPING, BESIDE])
def test_the_record_of_a_step_is_written_after_all_its_data(
    program: Path, tmp_path: Path, faults: str, plan: int
) -> None:
    """Otherwise a disk's cache could keep the record and lose the data."""
    lines, data = begun() if plan == KEEPING else ([], b"")
    text = script(plan, *lines, *trained(2), store=store_line(tmp_path, plan))
    assert run(program, tmp_path, text, data, LD_PRELOAD=faults).code == 0


def test_a_disk_without_room_is_refused_before_anything_runs(
    program: Path, tmp_path: Path, faults: str
) -> None:
    line = f"store bytes={1 << 40} anew=1 frozen=0 directory={tmp_path}"
    done = run(program, tmp_path, script(KEEPING, store=line))
    assert done.code == 5
    assert f"{tmp_path} has no room for a store of {1 << 40} bytes: No space" in done.errors
    strike = {"FAULT_CALL": "pwrite", "FAULT_AT": "0", "FAULT_KIND": "full"}
    text = script(KEEPING, store=store_line(tmp_path))
    late = run(program, tmp_path, text, LD_PRELOAD=faults, **strike)
    assert (late.code, "has no room" in late.errors) == (5, True)
    assert not (tmp_path / STORE).exists()


def test_a_store_file_left_by_a_killed_start_can_be_forgotten(
    program: Path, tmp_path: Path, faults: str
) -> None:
    line = f"store bytes={4 << 20} anew=1 frozen=0 directory={tmp_path}"
    strike = {"FAULT_CALL": "pwrite", "FAULT_AT": "2", "FAULT_KIND": "kill"}
    killed = run(program, tmp_path, script(KEEPING, store=line), LD_PRELOAD=faults, **strike)
    assert killed.code == -signal.SIGKILL
    assert (tmp_path / STORE).exists()
    head = f"joulewright-plan 1\narena bytes=4096\n{line.replace('anew=1', 'anew=0')}\n"
    assert run(program, tmp_path, f"{head}forget\nend\n").errors == ""
    assert not (tmp_path / STORE).exists()


def test_a_second_replay_is_refused_while_the_first_one_runs(program: Path, tmp_path: Path) -> None:
    idle = script(KEEPING, "idle id=0 duration_ns=60000000000", store=store_line(tmp_path))
    results = tmp_path / "first" / "results"
    with start(program, results.parent, idle) as process:
        try:
            wait_until(process, lambda: has_printed(results, "scratch"))
            second = run(program, tmp_path, script(KEEPING, store=store_line(tmp_path)))
        finally:
            process.kill()
    assert second.code == 5
    assert f"another replay is using {tmp_path / STORE}; wait for it" in second.errors
    assert run(program, tmp_path, script(KEEPING, store=store_line(tmp_path))).code == 0


def test_recovery_refuses_a_missing_store_and_one_of_another_size(
    program: Path, tmp_path: Path
) -> None:
    line = store_line(tmp_path, anew=False)
    none = run(program, tmp_path, script(KEEPING, "recover", store=line))
    assert (none.code, "no run has left a step to recover" in none.errors) == (5, True)
    (tmp_path / STORE).write_bytes(b"\0" * PAGE)
    other = run(program, tmp_path, script(KEEPING, "recover", store=line))
    assert (other.code, f"has {PAGE} bytes instead of" in other.errors) == (5, True)
    anew = run(program, tmp_path, script(KEEPING, "recover", store=store_line(tmp_path)))
    assert anew.code == 7
    assert "the storage holds no complete step of this plan" in anew.errors


def test_raw_flash_of_linux_is_refused(program: Path, tmp_path: Path) -> None:
    line = "store bytes=65536 offset=0 page_bytes=2048 erase_block_bytes=16384 mtd=/dev/mtd0 name=x"
    done = run(program, tmp_path, script(KEEPING, store=line))
    assert (done.code, "give storage.path" in done.errors) == (2, True)


# --- asynchronous transfers ---------------------------------------------------------------------


def test_asynchronous_transfers_keep_their_order(program: Path, tmp_path: Path) -> None:
    x = words(*range(LARGE // 4))
    lines = [
        f"load address=0 bytes={LARGE} at=0",
        f"load address={2 * LARGE} bytes=64 at=0",
        "train id=0 watched=1",
        "probes first=0",
        "spans first=0",
        f"dump address={LARGE} bytes={LARGE}",
        "dump address=0 bytes=68",
        "counters",
    ]
    text = script(BESIDE, *lines, *trained(20), store=store_line(tmp_path, BESIDE))
    done = run(program, tmp_path, text, x)
    assert (done.code, done.errors) == (0, "")
    assert done.dumped[:LARGE] == bumped(x)
    assert done.dumped[LARGE : LARGE + 64] == bumped(words(*range(16)))
    assert done.dumped[LARGE + 64 :] == b"\xdf\xba\xc0\x7f"  # poisoned after the page-out
    (spans,) = done.records.spans.values()
    actions = PLANS[BESIDE].actions
    transfers = [i for i, a in enumerate(actions) if isinstance(a.does, PageOut | PageIn)]
    for one, next_ in pairwise(transfers):
        assert spans[next_].start_s >= spans[one].start_s + spans[one].time_s - 1e-6
    poison = next(i for i, a in enumerate(actions) if isinstance(a.does, Poison))
    first = spans[transfers[0]]
    assert spans[poison].start_s >= first.start_s + first.time_s - 1e-6
    (window, *_) = done.records.results.windows
    assert window.running_ns <= window.end_ns - window.start_ns


@pytest.mark.parametrize(
    ("at", "action", "steps"), [(0, 1, 0), (4, 1, 0), (5, 3, 0), (6, 8, 0), (7, 1, 1)]
)
def test_an_asynchronous_transfer_that_fails_ends_the_step(
    program: Path, tmp_path: Path, faults: str, at: int, action: int, steps: int
) -> None:
    """Filling the file takes ten writes, the first tensor five, and the others one each."""
    lines = [f"load address=0 bytes={LARGE} at=0", *trained(3)]
    line = f"store bytes={10 << 20} anew=1 frozen=0 directory={tmp_path}"
    text = script(BESIDE, *lines, store=line)
    strike = {"FAULT_CALL": "pwrite", "FAULT_AT": str(10 + at), "FAULT_KIND": "full"}
    done = run(program, tmp_path, text, b"\0" * LARGE, LD_PRELOAD=faults, **strike)
    assert done.code == 7
    assert f"action {action}: slot " in done.errors
    assert len(done.records.results.windows) == steps


# --- memory -------------------------------------------------------------------------------------


def test_a_step_cannot_allocate_more_memory_than_at_its_begin(
    program: Path, tmp_path: Path
) -> None:
    lines = ["train id=0 watched=0", "dump address=0 bytes=8", "counters"]
    done = run(program, tmp_path, script(HUNGRY, *lines))
    assert (done.code, done.errors) == (0, "")
    assert done.dumped == words(0, 0)
    fields = dict(re.findall(r"(\w+)=(\d+)", done.text.partition("\nprocess ")[2]))
    limit, overhead = int(fields["limit_bytes"]), int(fields["overhead_bytes"])
    assert overhead == limit - PLANS[HUNGRY].arena_bytes > 0
    assert 0 < int(fields["peak_resident_bytes"]) < limit


def test_throttling_is_read_even_when_no_memory_is_left(program: Path, tmp_path: Path) -> None:
    state = tmp_path / "sys/devices/platform/soc/soc:firmware/get_throttled"
    state.parent.mkdir(parents=True)
    state.write_text("50005\n")
    lines = [*trained(1), "dump address=0 bytes=64", "counters"]
    done = run(program, tmp_path, script(GREEDY, *lines), options=("--sysfs", "sys"))
    assert (done.code, done.errors) == (0, "")
    (window,) = done.records.results.windows
    assert window.throttled == 0x50005
    assert len(done.dumped) == 64
    assert re.search(r"peak_resident_bytes=[1-9]", done.text)


def test_a_kernel_can_allocate_outside_a_replay(program: Path, tmp_path: Path) -> None:
    """The kernel ends the program with code 42 if its allocation succeeds."""
    op = (
        "op id=0 copies=1 first=1 min_ns=1 max_ns=1 kind=tanh.forward attributes=16 scalars=-"
        " reads=64:zero writes=64"
    )
    plan = f"joulewright-plan 1\narena bytes=4096\n{op}\nend\n"
    assert run(program, tmp_path, plan).code == 42


def test_a_second_plan_of_a_process_gets_the_memory_that_it_needs(
    program: Path, tmp_path: Path
) -> None:
    """The limit of the first plan does not cover the second one's thread and answers."""
    arena = PLANS[BESIDE].arena_bytes
    text = "\n".join(
        [
            "joulewright-plan 1",
            f"arena bytes={arena}",
            store_line(tmp_path, BESIDE),
            f"replay plan={HUNGRY}",
            *trained(2),
            f"replay plan={BESIDE}",
            *trained(2),
            f"replay plan={BESIDE}",
            "counters",
            *trained(1),
            f"replay plan={HUNGRY}",
            *trained(1),
            "dump address=0 bytes=8",
            "end\n",
        ]
    )
    done = run(program, tmp_path, text)
    assert (done.code, done.errors) == (0, "")
    assert len(done.records.results.windows) == 6
    assert done.records.counters[0].steps == 0
    assert done.dumped == words(0, 0)


@pytest.mark.slow
def test_a_meter_that_is_a_command_is_read_while_memory_is_limited(
    program: Path, tmp_path: Path
) -> None:
    command = tmp_path / "vcgencmd"
    command.write_text("#!/bin/sh\necho ' VDD_A current(0)=1.5A'\necho ' VDD_V volt(1)=2.0V'\n")
    command.chmod(0o700)
    text = "\n".join(
        [
            "joulewright-plan 1",
            f"arena bytes={PLANS[BESIDE].arena_bytes}",
            "sampler period_ns=50000000",
            f"sample pmic={command}",
            store_line(tmp_path, BESIDE),
            f"replay plan={BESIDE}",
            *trained(1),
            "idle id=9 duration_ns=10000000000",  # long: the command waits for a busy computer
            "end\n",
        ]
    )
    done = run(program, tmp_path, text)
    assert (done.code, done.errors) == (0, "")
    idle = next(each for each in done.records.results.windows if each.id == 9)
    samples = parse_samples((tmp_path / "samples").read_text(), 1)
    during = (samples.times_ns > idle.start_ns) & (samples.times_ns < idle.end_ns)
    assert during.sum() > 10
    assert set(samples.values[during, 0]) == {3_000_000}


def test_a_write_beyond_the_arena_is_found(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path, script(CARELESS, *trained(1)))
    assert (done.code, "bytes after the arena were overwritten" in done.errors) == (7, True)
