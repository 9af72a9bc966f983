"""The watched steps of ``profile`` on this computer, which is killed and called again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devices.documents.document import read_yaml
from devices.profile import DeviceProfile
from profiler.run.trials import RunDirectory

pytestmark = pytest.mark.slow

_PATIENCE_S = 300


def kept(results: Path) -> dict[Path, bytes]:
    """Files of finished sittings."""
    return {file: file.read_bytes() for file in results.glob("runs/*/watch*/*.json")}


def test_a_killed_watch_goes_on_with_the_missing_sittings(tmp_path: Path) -> None:
    command = [sys.executable, "cli.py", "profile", "--device", "local", "--model", "digits"]
    command += ["--batch", "2", "--blocks", "1", "--no-storage", "--results", str(tmp_path)]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        due_s = time.monotonic() + _PATIENCE_S
        while len(kept(tmp_path)) < 2 and killed.poll() is None and time.monotonic() < due_s:
            time.sleep(0.01)
    finally:
        killed.kill()
        _, said = killed.communicate()
    before = kept(tmp_path)
    assert len(before) >= 2, said.decode()
    (run,) = map(RunDirectory, (tmp_path / "runs").iterdir())
    assert not run.is_finished

    trials = {file: file.stat().st_mtime_ns for file in run.path.glob("block-*")}
    subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE_S)
    assert list((tmp_path / "runs").iterdir()) == [run.path]
    assert run.is_finished
    assert trials == {file: file.stat().st_mtime_ns for file in run.path.glob("block-*")}
    after = {file.name: content for file, content in kept(tmp_path).items()}
    assert len(after) > len(before)
    assert (
        before.items() <= {run.watching / name: content for name, content in after.items()}.items()
    )
    (costs,) = read_yaml(tmp_path / "profiles" / "local.yaml", DeviceProfile).step_costs
    times = [sitting.measured for sitting in costs.sittings]
    assert sorted(times) == sorted(
        json.loads(content)["record"]["measured"] for content in after.values()
    )
