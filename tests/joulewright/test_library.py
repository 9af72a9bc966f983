"""The public library interface: ``from joulewright import solve, profile_device, …``."""

from __future__ import annotations

import subprocess
import sys
from inspect import getdoc
from textwrap import dedent

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
