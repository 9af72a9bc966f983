"""The networks on the page for users are exported and read as the page says. Needs PyTorch."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from devices.operation import Loss
from networks.exported import exported
from networks.models import build_model
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is missing"),
]

PAGE = (ROOT / "docs" / "own-networks.md").read_text(encoding="utf-8")


def source(name: str) -> str:
    """The Python of the page that follows its file's name."""
    return re.split(r"```python\n", PAGE.split(f"`{name}`", 1)[1])[1].split("```")[0]


@pytest.mark.parametrize(
    ("name", "loss", "batch"),
    [("cnn.py", None, 8), ("keywords.py", None, 8), ("tokens.py", "cross-entropy", 4)],
)
def test_networks_of_the_page_can_be_trained(
    name: str, loss: Loss | None, batch: int, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(source(name))
    path = exported(f"{tmp_path / name}:build", tmp_path)
    step = build_model(path, loss=loss)
    assert step.batch == batch
    trained = {op.reads[0] for op in step.ops if op.name.endswith(".update")}
    assert step.file is not None
    assert trained == {
        tensor
        for name, tensor in step.file.tensor_of.items()
        if not re.search("running|tracked", name)
    }
