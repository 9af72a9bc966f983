"""The page that compares addresses on and off the beginnings of cache lines, with a real run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.replay import turns
from benchmarks.replay.alignment import alignment_page
from benchmarks.replay.cases import Network, Profiled
from benchmarks.replay.turns import Question
from devices.description import load_description
from devices.errors import MeasurementInvalid
from profiler.run.options import ProfileOptions
from tests.support.graphs.solved import profile_of
from tests.support.onboard.kernels import KernelLibrary, compile_library
from tests.support.progress import ignore

_NETWORK = Network("digits", 1)


def _ask(*shares: float) -> Question:
    local = load_description("local").with_matmul("in-tree")
    plain = local.toolchain.model_copy(update={"flags": ("-O1",)})
    description = local.model_copy(update={"toolchain": plain})
    return Question(description, [_NETWORK], shares, 2, ProfileOptions(blocks=1), 2.0, 1)


@pytest.mark.slow
def test_both_kinds_of_addresses_are_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = KernelLibrary(compile_library(tmp_path, "in-tree", ["-O1"]))
    profile = profile_of(_NETWORK.step(), library)
    monkeypatch.setattr(turns, "profiled", lambda *_: Profiled(_NETWORK, profile))
    (table,) = alignment_page(_ask(1.5), [], ignore).tables
    ((network, share, before, now, arena_bytes, *_, over_before, again),) = table.rows
    assert (network, share) == ("digits, batch 1", "150%")
    assert now.startswith("0 of ")
    assert before.split(" of ")[1] == now.split(" of ")[1]
    assert int(arena_bytes) > 0
    assert " to " in over_before
    assert " to " in again
    assert table.note.startswith("Now over before: ")


def test_a_network_that_cannot_be_profiled_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def profiled(*_: object) -> Profiled:
        raise MeasurementInvalid("every window was disturbed")

    monkeypatch.setattr(turns, "profiled", profiled)
    (table,) = alignment_page(_ask(0.8, 0.5), [], ignore).tables
    assert [row[2] for row in table.rows] == ["failed: every window was disturbed"] * 2
    assert not table.note
