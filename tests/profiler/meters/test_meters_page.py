"""Examples and table in docs/meters.md agree with the description format."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from devices.meters import HostMeter, Meter, OnBoardMeter, Sync
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "meters.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(next(iter(block.values()))["kind"]))
def test_the_examples_in_the_page_are_valid(block: dict[str, Any]) -> None:
    ((key, value),) = block.items()
    TypeAdapter({"meter": Meter, "sync": Sync}[key]).validate_python(value)


def test_the_page_has_a_row_for_every_meter() -> None:
    kinds = {
        meter.model_fields["kind"].annotation.__args__[0]  # type: ignore[union-attr]
        for meter in (*OnBoardMeter.__args__, *HostMeter.__args__)
    }
    assert kinds == set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))
