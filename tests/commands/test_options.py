"""Options as typed values, and their choices."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from commands.command_line import parse
from commands.profile.options import MeasureOptions, RefineOptions
from devices.errors import InputError
from devices.results import Results
from networks.kinds import Optimizer, Place
from profiler.run.options import ProfileOptions
from solver.options import Coverage, EngineName, FormulationName, Order, SolverOptions
from solver.requests.request import CodecWord, ProfiledModel

COMMANDS: Mapping[str, Sequence[str]] = {
    "profile": ("--device", "local"),
    "profile again": ("--device", "local", "--refine", "run"),
    "solve": ("--profile", "m4", "--ram-budget", "50%"),
    "check": ("--device", "local"),
    "tune": ("--device", "local", "--ram-budget", "50%"),
    "run": ("--schedule", "a.json", "--device", "local"),
    "sweep": ("--profile", "m4", "--ram-budgets", "50%"),
    "campaign": ("run", "published"),
    "campaign status": ("status", "published"),
    "campaign compare": ("compare", "flags:o2", "flags:o3"),
    "serve": (),
    "plot": ("--profile", "m4"),
    "export": ("--schedule", "a.json", "--format", "c"),
    "export trace": ("--schedule", "a.json", "--format", "perfetto"),
    "diff": ("m0", "m4"),
    "flash": ("--device", "local"),
    "lab": ("up",),
    "models": (),
}

EXPORT = ("solve", "--profile", "m4", "--export-graph", "g.json")


def options(name: str, *argv: str) -> Any:
    """The options value that a command line is parsed into."""
    run: Any = parse([name, *argv]).run
    return run.args[0]


@pytest.mark.parametrize("name", ["profile", "run", "export"])
@pytest.mark.parametrize("seed", ["-1", "2147483648", "9" * 5000, "1.5"])
def test_a_seed_is_a_whole_number_that_is_not_negative(
    name: str, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        options(name, *COMMANDS[name], f"--seed={seed}")
    assert end.value.code == 2
    assert "argument --seed: " in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_one_frozen_value(name: str) -> None:
    made = options(name.split()[0], *COMMANDS[name])
    assert not isinstance(made, argparse.Namespace)
    field = dataclasses.fields(made)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, field, None)


@pytest.mark.parametrize(
    ("option", "literal"),
    [
        ("--formulation", FormulationName),
        ("--order", Order),
        ("--engine", EngineName),
        ("--budget-covers", Coverage),
        ("--optimizer", Optimizer),
        ("--parameters-in", Place),
        ("--codecs", CodecWord),
    ],
)
def test_every_name_of_a_literal_can_be_chosen_and_no_other(
    option: str, literal: object, capsys: pytest.CaptureFixture[str]
) -> None:
    for choice in get_args(literal):
        options("solve", *COMMANDS["solve"], option, choice)
    with pytest.raises(SystemExit):
        options("solve", *COMMANDS["solve"], option, "other")
    assert "invalid choice: 'other'" in capsys.readouterr().err


def test_options_left_out_have_the_library_defaults() -> None:
    solve = options("solve", *COMMANDS["solve"])
    assert solve.solver == dataclasses.replace(SolverOptions(), threads=solve.solver.threads)
    assert solve.graph == ProfiledModel(
        profile="m4",
        model=None,
        batch=None,
        optimizer=None,
        parameters_in="ram",
        loss=None,
        train=None,
        accumulate=None,
        slices="auto",
        codecs="auto",
        lora=None,
        strict=False,
    )
    profile = options("profile", *COMMANDS["profile"])
    assert isinstance(profile, MeasureOptions)
    assert profile.measuring == ProfileOptions()
    assert profile.results == Results()


def test_refine_has_its_own_options_type() -> None:
    refine = options("profile", *COMMANDS["profile again"])
    assert refine == RefineOptions("local", Path("run"), False, None, Results())


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ("profile", "--device", "local", "--refine", "run", "--blocks", "3", "--no-storage"),
            "--blocks, --no-storage cannot be used with --refine, which measures the operations"
            " that RUN names, in its schedule; leave out one or the other",
        ),
        (("plot",), "plot needs --profile or --schedule"),
        (
            ("plot", "--profile", "m4", "--graph", "g.json"),
            "--graph is the costed graph of a schedule; add --schedule, or leave it out",
        ),
    ],
)
def test_incompatible_options_are_usage_errors(
    argv: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(argv)
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {sentence}\n")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("solve", "--graph", "g.json"), "solve needs --ram-budget"),
        (("solve", *COMMANDS["solve"], "--robust"), "--robust needs --draws"),
        (
            (*EXPORT, "--out", "s.json", "--deadline", "1.5x", "--baselines"),
            "nothing for --deadline, --baselines, --out to do; add --ram-budget",
        ),
        ((*EXPORT, "--no-paging"), "nothing for --no-paging to do; add --ram-budget"),
        (
            ("solve", *COMMANDS["solve"], "--order", "free", "--formulation", "poet"),
            "--order free cannot be used with --formulation poet",
        ),
        (
            ("sweep", "--graph", "g.json", "--ram-budgets", "1", "--parameters-in", "storage"),
            "--parameters-in cannot be used with --graph",
        ),
        (
            ("solve", "--graph", "g.json", "--ram-budget", "1", "--accumulate", "auto"),
            "--accumulate cannot be used with --graph",
        ),
        (
            ("solve", "--graph", "g.json", "--ram-budget", "1", "--slices", "64KiB"),
            "--slices cannot be used with --graph",
        ),
        (("export", *COMMANDS["export"], "--run", "run"), "--run is for --format perfetto"),
        (("export", *COMMANDS["export trace"], "--device", "pi4"), "--device is for --format c"),
        (("export", *COMMANDS["export trace"], "--seed", "1"), "--seed is for --format c"),
        (
            ("export", *COMMANDS["export trace"], "--learning-rate", "0.1"),
            "--learning-rate is for --format c",
        ),
        (("export", *COMMANDS["export trace"], "--steps", "3"), "--steps is for --format c"),
        (
            ("export", *COMMANDS["export trace"], "--rate-schedule", "cosine"),
            "--rate-schedule is for --format c",
        ),
        (("export", *COMMANDS["export trace"], "--momentum", "0"), "--momentum is for --format c"),
        (
            ("export", *COMMANDS["export trace"], "--weight-decay", "0"),
            "--weight-decay is for --format c",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused_before_anything_is_read(
    argv: tuple[str, ...], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        parse(argv)


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "resnet8"),
        ("--batch", "8"),
        ("--optimizer", "adam"),
        ("--loss", "mse"),
        ("--train", "head"),
        ("--lora", "4"),
        ("--strict",),
    ],
)
def test_a_costed_graph_excludes_what_it_states(words: tuple[str, ...]) -> None:
    budgets = {"solve": "--ram-budget", "sweep": "--ram-budgets"}
    for name, budget in budgets.items():
        if (name, *words) != ("sweep", "--strict"):
            with pytest.raises(InputError, match=f"{words[0]} cannot be used with --graph"):
                parse((name, "--graph", "g.json", budget, "50%", *words))


def test_general_shapes_are_measured_beside_a_small_network_for_ten_minutes() -> None:
    asked = options("profile", *COMMANDS["profile"], "--general")
    assert (asked.general_s, asked.models) == (600.0, ("resnet8",))
    named = ("--general", "2.5", "--model", "digits")
    asked = options("profile", *COMMANDS["profile"], *named)
    assert (asked.general_s, asked.models) == (150.0, ("digits",))
    assert options("profile", *COMMANDS["profile"]).general_s is None
