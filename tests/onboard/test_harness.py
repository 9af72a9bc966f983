"""The harness on this computer: plans that it refuses, windows, and files that remain."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from profiler.building.toolchain import BuiltHarness
from profiler.script.records import Results, parse_results, parse_samples
from tests.support.boards.measuring import (
    HARNESS,
    KERNELS,
    Signal,
    compile_with_kernel,
    run_harness,
    write_tree,
)

HEAD = "joulewright-plan 1\narena bytes=65536\n"
RELU = (
    "op id=0 copies=1 first=0 min_ns=1000000 max_ns=4000000 kind=relu.forward attributes=16"
    " scalars=- reads=64:signed:3f800000 writes=64\n"
)
COLD = RELU.replace("copies=1 first=0 ", "copies=77 first=200 ")  # at least so many executions
SGD = (
    "op id=0 copies=1 first=0 min_ns=1000000 max_ns=4000000 kind=sgd.update attributes=16"
    " scalars=00000000,00000000 reads=64:signed:3f800000,64:signed:3f800000 writes=@0\n"
)


@pytest.fixture
def program(compiled: tuple[Path, BuiltHarness]) -> Path:
    return compiled[0]


def measure(program: Path, directory: Path, body: str, *options: str) -> Results:
    code, results, errors = run_harness(program, directory, f"{HEAD}{body}end\n", *options)
    assert (code, errors) == (0, "")
    return parse_results(results)


@pytest.mark.slow
def test_a_window_has_the_requested_length_and_holds_many_executions(
    program: Path, tmp_path: Path
) -> None:
    (window,) = measure(program, tmp_path, RELU).windows
    assert window.running_ns >= 1_000_000
    assert window.end_ns - window.start_ns >= 0.99 * window.running_ns
    assert window.executions > 100


@pytest.mark.slow
def test_an_operation_longer_than_a_window_is_executed_once(tmp_path: Path) -> None:
    program = compile_with_kernel(
        tmp_path,
        "(void)call; struct timespec a, b; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);"
        " do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);"
        " while ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec < 6e6);",
    )
    (window,) = measure(program, tmp_path, RELU).windows
    assert window.executions == 1


@pytest.mark.slow
def test_a_window_starts_from_the_count_of_an_earlier_block(program: Path, tmp_path: Path) -> None:
    (window,) = measure(program, tmp_path, RELU.replace("first=0", "first=1234567")).windows
    assert window.executions == 1_234_567


def written_addresses(tmp_path: Path, op: str) -> list[int]:
    program = compile_with_kernel(
        tmp_path,
        'FILE *log = fopen("log", "a"); fprintf(log, "%p\\n", call->writes[0]); fclose(log);',
    )
    measure(program, tmp_path, op)
    return [int(line, 16) for line in (tmp_path / "log").read_text().split()]


@pytest.mark.slow
def test_warm_executions_reuse_the_same_operands(tmp_path: Path) -> None:
    assert len(set(written_addresses(tmp_path, RELU))) == 1


def test_cold_executions_use_every_copy_before_one_is_used_again(tmp_path: Path) -> None:
    addresses = written_addresses(tmp_path, COLD)
    assert len(addresses) > 2 * 77
    for start in range(len(addresses) - 77):
        assert len(set(addresses[start : start + 77])) == 77


@pytest.mark.slow
def test_cold_copies_are_not_visited_in_the_order_of_their_addresses(tmp_path: Path) -> None:
    addresses = written_addresses(tmp_path, COLD)
    strides = {b - a for a, b in pairwise(addresses)}
    assert min(map(abs, strides)) > 128


def test_copies_are_filled_in_the_order_in_which_they_are_used(tmp_path: Path) -> None:
    """Caches then have dropped those that are used first."""
    log = 'FILE *log = fopen("log", "a"); fprintf(log, "{} %p\\n", {}); fclose(log);'
    program = compile_with_kernel(
        tmp_path,
        log.format("used", "call->reads[0]")
        + " } void *memcpy(void *to, const void *from, size_t bytes) {"
        + f" if (bytes == 128) {{ {log.format('filled', 'to')} }}"
        + " return memmove(to, from, bytes);",
    )
    measure(program, tmp_path, COLD)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    filled, used = ([at for what, at in lines if what == kind] for kind in ("filled", "used"))
    assert filled == used[1:77]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fill", "check"),
    [
        ("signed:3f000000", "x < -0.5f || x > 0.5f"),
        ("positive", "x < 0.5f || x >= 1.5f"),
        ("index:7", "i < 0 || i >= 7"),
    ],
)
def test_operands_are_filled_as_described(fill: str, check: str, tmp_path: Path) -> None:
    program = compile_with_kernel(
        tmp_path,
        "const float *reals = call->reads[0]; const int32_t *numbers = call->reads[0];"
        " float sum = 0; for (int n = 0; n < 16; n++) {"
        " float x = reals[n]; int32_t i = numbers[n]; (void)x; (void)i; sum += x;"
        f' if ({check}) fopen("wrong", "w"); }} if (sum == 0) fopen("wrong", "w");',
    )
    measure(program, tmp_path, RELU.replace("signed:3f800000", fill))
    assert not (tmp_path / "wrong").exists()


def test_an_in_place_operation_overwrites_its_operand(program: Path, tmp_path: Path) -> None:
    (window,) = measure(program, tmp_path, SGD).windows
    assert window.executions > 100


def test_a_step_executes_its_calls_in_order_on_its_buffers(tmp_path: Path) -> None:
    program = compile_with_kernel(
        tmp_path,
        'FILE *log = fopen("log", "a");'
        ' fprintf(log, "%p %p\\n", call->reads[0], call->writes[0]); fclose(log);',
    )
    call = "call kind=relu.forward attributes=4 scalars=- reads={} writes={}\n"
    step = (
        "step id=5 first=3 min_ns=1 max_ns=1000000 buffers=3 calls=2\n"
        + "buffer bytes=16 fill=signed:3f800000\n" * 3
        + call.format(0, 1)
        + call.format(1, 2)
    )
    (window,) = measure(program, tmp_path, step).windows
    assert (window.id, window.executions) == (5, 3)
    calls = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len(calls) == 2 * (3 + 1)
    assert all(first[1] == second[0] for first, second in zip(calls[::2], calls[1::2], strict=True))
    assert len({tuple(call) for call in calls}) == 2


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ("", "the plan is cut off: its last line is not `end`"),
        (HEAD + RELU, "the plan is cut off"),
        ("joulewright-plan 2\nend\n", "line 1: this harness reads joulewright-plan 1"),
        ("joulewright-plan 1\nend\n", "line 2: `arena` is expected here"),
        (HEAD + RELU.replace("relu", "rely") + "end\n", "line 3: kind names no kernel"),
        (HEAD + RELU.replace("=16 ", "=16,1 ") + "end\n", "attributes differ in number"),
        (HEAD + RELU.replace("copies=1", "copies=0") + "end\n", "copies is not a whole number"),
        (HEAD + RELU.replace("copies=1", "copies=x") + "end\n", "copies is not a whole number"),
        (HEAD + RELU.replace("id=0 ", "") + "end\n", "line 3: id is expected next"),
        (HEAD + RELU.replace("=4000000", "=4") + "end\n", "max_ns is below min_ns"),
        (HEAD + RELU.replace("writes=64", "writes=66") + "end\n", "writes has a size"),
        (HEAD + RELU.replace("writes=64", "writes=@1") + "end\n", "an operand that is not read"),
        (HEAD + RELU.replace("3f800000", "3f8") + "end\n", "reads has an unknown fill"),
        (HEAD + RELU.replace("writes=64", "writes=64 x=1") + "end\n", "is not expected on"),
        (HEAD + RELU.replace("copies=1", "copies=1000") + "end\n", "do not fit into the arena"),
        (HEAD + RELU.replace("64", "99999999999999999999") + "end\n", "has a size"),
        (HEAD + RELU.replace("64", "288230376151711740") + "end\n", "do not fit into the arena"),
        # As much as the sizes of an arena's addresses can say: their sum must not overflow.
        (HEAD + RELU.replace("64", "9223372036854775804") + "end\n", "do not fit into the arena"),
        (HEAD + RELU.replace("64", "9223372036854775808") + "end\n", "has a size"),
        (HEAD + SGD.replace("=00000000,00000000", "=-") + "end\n", "scalars differ in number"),
        (HEAD + "dance id=1\nend\n", "line 3: dance is not a known line"),
        (HEAD + "sample file=/x\nend\n", "`sample` must follow `sampler`"),
        (
            HEAD + "transfer id=1 method=read bytes=4096 most=1 min_ns=1 tail_ns=0\nend\n",
            "a transfer needs a `scratch` line",
        ),
        (
            HEAD + "step id=1 first=1 min_ns=1 max_ns=1 buffers=1 calls=1\nidle id=2\nend\n",
            "line 4: a buffer or a call is expected here",
        ),
        (
            HEAD + "step id=1 first=1 min_ns=1 max_ns=1 buffers=1 calls=1\n"
            "buffer bytes=64 fill=zero\n"
            "call kind=relu.forward attributes=16 scalars=- reads=0 writes=7\nend\n",
            "a call writes a buffer that does not exist",
        ),
    ],
)
def test_a_wrong_plan_is_refused_in_a_sentence(
    plan: str, sentence: str, program: Path, tmp_path: Path
) -> None:
    code, _, errors = run_harness(program, tmp_path, plan)
    assert code == 2
    assert sentence in errors
    assert errors.count("\n") == 1


def test_records_of_finished_windows_survive_a_failure_of_a_later_one(
    program: Path, tmp_path: Path
) -> None:
    code, text, _ = run_harness(program, tmp_path, f"{HEAD}{RELU}{RELU}nonsense\nend\n")
    results = parse_results(text)
    assert code == 2
    assert len(results.windows) == 2
    assert results.end is None


def test_a_missing_meter_file_is_named(program: Path, tmp_path: Path) -> None:
    plan = f"{HEAD}sampler period_ns=1000000\nsample file={tmp_path}/none\n{RELU}end\n"
    code, _, errors = run_harness(program, tmp_path, plan)
    assert code == 4
    assert f"meter: {tmp_path}/none: No such file" in errors


@pytest.mark.slow
def test_samples_span_every_window_on_the_same_clock(program: Path, tmp_path: Path) -> None:
    sensor = tmp_path / "a sensor"
    sensor.write_text("11\n")
    with Signal(sensor, ["11", "22", "33"], hold_s=0.005):
        results = measure(
            program,
            tmp_path,
            f"sampler period_ns=1000000\nsample file={sensor}\nsample file={sensor}\n"
            "idle id=0 duration_ns=5000000000\n",  # long: other programs may delay the signal
        )
    samples = parse_samples((tmp_path / "samples").read_text(), files=2)
    (window,) = results.windows
    assert samples.values.shape[1] == 2
    assert set(samples.values[:, 0]) == {11, 22, 33}
    assert samples.times_ns[0] <= window.start_ns
    assert samples.times_ns[-1] >= window.end_ns
    assert (samples.times_ns[1:] > samples.times_ns[:-1]).all()


@pytest.mark.slow
def test_samples_span_a_window_with_more_of_them_than_wait_in_memory(
    program: Path, tmp_path: Path
) -> None:
    """Samples that find no room in memory are lost: then the last part of the window has none."""
    sensor = tmp_path / "a sensor"
    sensor.write_text("11\n")
    results = measure(
        program,
        tmp_path,
        f"sampler period_ns=10000\nsample file={sensor}\nidle id=0 duration_ns=8000000000\n",
    )
    samples = parse_samples((tmp_path / "samples").read_text(), files=1)
    (window,) = results.windows
    assert (samples.times_ns[1:] > samples.times_ns[:-1]).all()
    # Memory is full after about a second. The sampler of a busy computer may rest longer than that.
    bounds_ns = np.linspace(window.start_ns, window.end_ns, 3)
    assert (np.histogram(samples.times_ns, bounds_ns)[0] > 0).all()


@pytest.mark.slow
def test_a_window_whose_frequency_moves_is_tried_again(tmp_path: Path) -> None:
    tries, (before, after) = frequencies_seen(tmp_path, "executed == 0 ? 1500000 : 1400000")
    assert tries >= 2
    assert before == after == 1_400_000


@pytest.mark.slow
def test_the_record_shows_a_frequency_that_never_settles(tmp_path: Path) -> None:
    tries, (before, after) = frequencies_seen(tmp_path, "executed % 2 ? 1400000 : 1500000")
    assert tries == 3
    assert before != after


def frequencies_seen(tmp_path: Path, khz: str) -> tuple[int, tuple[int, int]]:
    """Measure a window of one execution on a processor whose frequency changes at every execution.

    Returns its tries, and the frequencies before and after it. The first execution comes before
    the window.
    """
    name = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    files = [name.format(processor) for processor in os.sched_getaffinity(0)]
    write_tree(tmp_path, dict.fromkeys(files, "1500000"))
    write = " ".join(
        f'file = fopen("{file}", "w"); fprintf(file, "%d\\n", khz); fclose(file);' for file in files
    )
    program = compile_with_kernel(
        tmp_path,
        f"(void)call; static int executed; FILE *file; const int khz = {khz}; executed++; {write}",
    )
    op = RELU.replace("first=0 min_ns=1000000 max_ns=4000000", "first=1 min_ns=1 max_ns=1")
    (window,) = measure(program, tmp_path, f"tries count=3\n{op}", "--sysfs", "sys").windows
    return window.tries, (window.frequency_before_khz, window.frequency_after_khz)


@pytest.mark.parametrize("method", ["read", "write", "write-buffered"])
def test_transfers_stay_within_their_count_and_leave_no_file(
    method: str, program: Path, tmp_path: Path
) -> None:
    storage = tmp_path / "with space"
    storage.mkdir()
    results = measure(
        program,
        tmp_path,
        f"scratch bytes=262144 directory={storage}\n"
        f"transfer id=0 method={method} bytes=8192 most=5 min_ns=60000000000 tail_ns=3000000\n",
    )
    (window,) = results.windows
    assert results.is_direct is not None
    assert window.executions == 5
    assert window.tail_end_ns - window.end_ns >= 3_000_000
    assert list(storage.iterdir()) == []


def test_a_sensor_settles_before_a_transfer_that_has_a_tail(program: Path, tmp_path: Path) -> None:
    transfer = "transfer id={} method=write bytes=4096 most=1 min_ns=1 tail_ns=3000000\n"
    scratch = f"scratch bytes=262144 directory={tmp_path}\n"
    body = scratch + "".join(map(transfer.format, range(2)))
    before, after = measure(program, tmp_path, body).windows
    assert after.start_ns - before.tail_end_ns >= 3_000_000


def test_missing_storage_is_an_error_that_names_it(program: Path, tmp_path: Path) -> None:
    plan = f"{HEAD}scratch bytes=65536 directory={tmp_path}/none\nend\n"
    code, _, errors = run_harness(program, tmp_path, plan)
    assert code == 5
    assert f"{tmp_path}/none" in errors


def test_the_scratch_file_is_gone_when_the_harness_is_killed(program: Path, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    (tmp_path / "plan").write_text(
        f"{HEAD}scratch bytes=65536 directory={storage}\nidle id=0 duration_ns=30000000000\nend\n"
    )
    with subprocess.Popen([program, "run", "plan", "results", "samples"], cwd=tmp_path) as harness:
        results = tmp_path / "results"
        while not (results.exists() and "scratch direct=" in results.read_text()):
            assert harness.poll() is None
        harness.kill()
    assert list(storage.iterdir()) == []


def test_the_board_describes_itself(program: Path, tmp_path: Path) -> None:
    printed = subprocess.run(
        [program, "describe", "--storage", tmp_path], capture_output=True, text=True, check=True
    ).stdout
    facts = dict(line.split("=", 1) for line in printed.splitlines())
    memory = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line
    )
    assert int(facts["memory_bytes"]) == int(memory.split()[1]) * 1024
    assert facts["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts["kernel"].split()[1] == os.uname().release
    assert int(facts["cores"]) >= 1
    assert facts["matmul"] == "in-tree"


def test_the_measuring_core_needs_no_operating_system(tmp_path: Path) -> None:
    """Firmware measures with the same source."""
    sources = [HARNESS / name for name in ("core.c", "plan.c", "text.c")]
    subprocess.run(
        [
            *("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-ffreestanding"),
            *("-fno-stack-protector", "-fno-pie", "-O1", f"-I{KERNELS}", "-c", *map(str, sources)),
        ],
        cwd=tmp_path,
        check=True,
    )
    symbols = subprocess.run(
        ["nm", "--undefined-only", "--format=just-symbols", *map(str, tmp_path.glob("*.o"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    needed = {symbol for symbol in symbols if not symbol.endswith(":")}
    libc = {"memcpy", "memset", "strchr", "strcmp", "strlen", "strncmp"}
    assert {name for name in needed if not name.startswith("jw_")} <= libc
