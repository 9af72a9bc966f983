"""The public library interface: ``from joulewright import solve, profile_device, …``."""

from __future__ import annotations

import subprocess
import sys
from inspect import getdoc
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import joulewright
from tests.support.paths import ROOT


def _documentation() -> str:
    text = getdoc(joulewright)
    assert text is not None
    return text


@pytest.mark.parametrize("name", joulewright.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    home = getattr(joulewright, name)
    assert home.__name__ == name
    assert f"``{name}``" in _documentation()


def test_unknown_name_is_an_attribute_error() -> None:
    misspelt = "solv"
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        getattr(joulewright, misspelt)


@pytest.mark.slow
def test_the_example_of_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, rest = _documentation().partition("::\n\n")
    example, _, _ = rest.partition("\nBoards")
    names: dict[str, object] = {}
    exec(dedent(example), names)
    assert capsys.readouterr().out.endswith(" J (published)\n")


def test_importing_the_library_imports_no_other_package() -> None:
    program = "import sys, joulewright; print({'devices', 'solver', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gap": -1}, "gap is -1; allowed: a number from 0 to 1"),
        ({"gap": float("nan")}, "gap is nan; allowed"),
        ({"solve_threads": -3}, "threads is -3; allowed: a whole number from 1 to"),
        ({"solve_threads": 1.5}, "threads is 1.5; allowed"),
        ({"time_limit_s": float("nan")}, "time_limit_s is nan; allowed: .*, or None for no limit"),
        ({"engine": "foo"}, "engine is 'foo'; allowed: 'highs', 'cbc', 'gurobi'"),
        ({"budget_covers": "some"}, "budget_covers is 'some'; allowed: 'all', 'activations'"),
        ({"ram_budget": -1}, "ram_budget is -1; allowed: a whole number from 0 to"),
        ({"ram_budget": "1MB"}, "ram_budget is '1MB'; allowed"),
        ({"ram_budget": 2**64}, "ram_budget is 18446744073709551616; allowed"),
        ({"runtime_budget": float("nan")}, "runtime_budget is nan; allowed: .* no deadline"),
        ({"runtime_budget": -1.0}, "runtime_budget is -1.0; allowed"),
        ({"batch_size": 0}, "batch_size is 0; allowed: a whole number from 1 to"),
    ],
)
def test_a_wrong_argument_of_solve_is_an_error_of_ours_before_the_search(
    wrong: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.published_call.solve_graph", pytest.fail)
    with pytest.raises(joulewright.JoulewrightError, match=said) as refused:
        joulewright.solve("linear", "m4", **{"ram_budget": 5000, **wrong})
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"formulation": "best"}, "formulation is 'best'; allowed: 'auto', 'compact'"),
        ({"order": "any"}, "order is 'any'; allowed: 'auto', 'given', 'free'"),
        ({"engine": None}, "engine is None; allowed"),
    ],
)
def test_a_wrong_option_of_the_solver_is_an_error_of_ours(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(joulewright.JoulewrightError, match=said):
        joulewright.SolverOptions(**wrong)


def test_a_path_may_be_text(tmp_path: Path) -> None:
    graph = joulewright.cost_graph(
        joulewright.build_model("linear", batch=1), joulewright.resolve_profile("m4")
    ).graph
    path = str(tmp_path / "made" / "linear.json")
    joulewright.write_atomically(path, graph.model_dump_json(by_alias=True))
    assert joulewright.read_json(path, joulewright.CostedGraph) == graph
    with pytest.raises(joulewright.JoulewrightError, match=r"none\.json: cannot be read"):
        joulewright.read_solved(str(tmp_path / "none.json"))
