"""Inputs of the fuzzer end in success or in a refusal, and its record resumes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fuzz.formats import FORMATS
from benchmarks.fuzz.worker import outcome
from tests.support.paths import ROOT

INPUTS = 60


# The boards of "serial answers" misbehave whatever they are asked.
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"serial answers"}))
def test_the_examples_that_inputs_are_made_from_are_accepted(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    for example in form.examples():
        path = tmp_path / form.file
        end = "\n...\n" if name == "device-profile/1" else ""
        path.write_text(example + end, encoding="utf-8")
        belongs_to_another_graph = name == "schedule/2" and example != form.examples()[0]
        assert outcome(name, path) == ("refused" if belongs_to_another_graph else "accepted")


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_made_inputs_end_in_success_or_in_a_refusal(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    path = tmp_path / form.file
    for seed in range(INPUTS):
        path.write_bytes(form.input(name, seed))
        assert outcome(name, path) in {"accepted", "refused"}, f"{name}:{seed}"


@pytest.mark.parametrize("name", ["device/1", "serial lines"])
def test_an_input_depends_on_its_format_and_seed_alone(name: str) -> None:
    inputs = [FORMATS[name].input(name, seed) for seed in range(100)]
    assert [FORMATS[name].input(name, seed) for seed in reversed(range(100))] == inputs[::-1]
    assert len(set(inputs)) > 90


@pytest.mark.slow
def test_the_record_resumes_and_is_extended(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    command = [sys.executable, "-m", "benchmarks.fuzz", "--formats", "serial frames"]
    for inputs in (5, 5, 8):
        subprocess.run(
            [*command, "--inputs", str(inputs), "--record", str(record)],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        done = json.loads(record.read_text())["formats"]["serial frames"]
        assert (done["following"], done["accepted"]) == (inputs, inputs)
