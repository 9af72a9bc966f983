"""Profiles over a real SSH server, through a network that fails."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

import cli
from devices.description import DeviceDescription, SshTransport
from devices.documents.document import dump_yaml, read_yaml
from devices.errors import BoardUnreachable
from devices.profile import DeviceProfile
from profiler.run.options import ProfileOptions
from profiler.run.run import OnProgress, ProgressEvent, profile_device
from profiler.run.trials import RunDirectory
from tests.support.boards.measuring import LARGE, SMALL, UPDATE, describe
from tests.support.boards.processes import eventually
from tests.support.boards.sshd import Network, Sshd

pytestmark = pytest.mark.usefixtures("prebuilt", "own_client")

SPECS = (SMALL, LARGE, UPDATE)
QUICK = ProfileOptions(blocks=2, min_window_s=0.1, storage=False, idle_s=0.005, poll_interval_s=0.1)


def reached_by(transport: SshTransport) -> DeviceDescription:
    return describe(transport=transport.model_dump(mode="json"))


def profile(
    board: DeviceDescription,
    directory: Path,
    options: ProfileOptions = QUICK,
    on_progress: OnProgress = lambda _event: None,
) -> DeviceProfile:
    return profile_device(board, SPECS, None, options, directory, on_progress)


def windows_of(directory: Path) -> list[tuple[int, int, str]]:
    """Block, harness run and window of every valid trial."""
    return [
        (harness_run.header.block, harness_run.header.sitting, trial.window)
        for harness_run in RunDirectory(directory).harness_runs()
        for trial in harness_run.trials
        if trial.void is None
    ]


@pytest.mark.slow
def test_a_profile_over_ssh_has_the_operations_and_build_of_a_local_one(
    sshd: Sshd, tmp_path: Path
) -> None:
    quick = ProfileOptions(**{**vars(QUICK), "min_window_s": 0.002})
    remote = profile(reached_by(sshd.description()), tmp_path / "ssh", quick)
    local = profile(describe(), tmp_path / "local", quick)
    assert set(remote.by_spec) == set(local.by_spec) == set(SPECS)
    assert remote.build == local.build
    # These two values change from one moment to the next.
    momentary = {"cpu_frequency_hz": None, "available_bytes": None}
    assert remote.board.model_copy(update=momentary) == local.board.model_copy(update=momentary)
    assert sshd.left() == []


@pytest.mark.slow
def test_a_connection_lost_and_restored_within_a_block_changes_nothing(
    network: Network, tmp_path: Path
) -> None:
    cuts: list[ProgressEvent] = []

    def cut_once(event: ProgressEvent) -> None:
        if event.activity.startswith("measuring block 2") and not cuts:
            cuts.append(event)
            network.cut()
            threading.Timer(1.0, network.restore).start()

    found = profile(reached_by(network.description()), tmp_path / "run", on_progress=cut_once)
    assert cuts
    assert found.by_spec[LARGE].cold.trials == 2
    assert {sitting for _, sitting, _ in windows_of(tmp_path / "run")} == {0}


@pytest.mark.slow
def test_after_a_lost_connection_the_same_command_resumes(
    network: Network, sshd: Sshd, tmp_path: Path
) -> None:
    def cut(event: ProgressEvent) -> None:
        if event.activity.startswith("measuring block 2"):
            network.cut()
            # Only from now on: a busy computer needs longer to log in.
            patch.setattr("profiler.transports.ssh._SshLink.patience_s", 2.0)

    board = reached_by(network.description())
    with pytest.MonkeyPatch.context() as patch, pytest.raises(BoardUnreachable):
        profile(board, tmp_path / "run", on_progress=cut)
    finished = windows_of(tmp_path / "run")
    assert {block for block, _, _ in finished} == {0}

    network.restore()
    found = profile(board, tmp_path / "run")
    assert found.by_spec[SMALL].warm.trials == 2
    after = windows_of(tmp_path / "run")
    assert after[: len(finished)] == finished
    assert len({(block, window) for block, _, window in after}) == len(after)
    assert sshd.left() == []


@dataclass(frozen=True)
class ShortOptions(ProfileOptions):
    """Profile options with short windows."""

    min_window_s: float = 0.002
    idle_s: float = 0.005
    poll_interval_s: float = 0.1


@pytest.mark.slow
def test_the_command_line_profiles_a_board_by_its_alias(
    sshd: Sshd,
    jump_sshd: Sshd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("profiler.run.options.ProfileOptions", ShortOptions)
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text(sshd.config("pi4", ProxyJump="gate") + jump_sshd.config("gate"))
    board = describe(transport={"kind": "ssh", "host": "pi4"})
    Path("board.yaml").write_text(dump_yaml(board))
    command = ["profile", "--device", "board.yaml", "--model", "dscnn", "--batch", "1"]
    command += ["--blocks", "1", "--no-storage", "--no-additivity"]
    assert cli.main(command) == 0
    assert "the 8 slowest of" in capsys.readouterr().out
    profile = read_yaml(Path("results/profiles/bench.yaml"), DeviceProfile)
    assert len(profile.operations) > 20
    assert eventually(lambda: f"target 127.0.0.1 port {sshd.port}" in jump_sshd.log)
    assert sshd.left() == []

    config.write_text("Host pi4\n  HostName\n")
    assert cli.main(command) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "error: ~/.ssh/config: line 2: found 'HostName'; allowed: a keyword and its value"
    )
