"""Comparisons of profiles, through ``cli.py diff`` and its library function."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cli
from devices.comparison import Difference, compare
from devices.documents.document import dump_yaml
from devices.operation import OpSpec
from devices.profile import (
    AffinePageCost,
    BoardIdentity,
    Cost,
    DeviceProfile,
    Interval,
    OperationCost,
    StorageCosts,
    SweepPoint,
)
from tests.support.graphs.profiles import in_context, made_up_profile

RELU = OpSpec.of("relu.forward", elements=64)
ADD = OpSpec.of("add.forward", elements=64)


def interval(median: float, half: float = 0.0) -> Interval:
    return Interval(median=median, low=median - half, high=median + half, freedom=20)


def profile(
    costs: dict[OpSpec, Interval], *, name: str = "a", kernel: str = "one", **fields: object
) -> DeviceProfile:
    return DeviceProfile.model_validate(
        {
            "name": name,
            "energy_source": "estimated",
            "board": BoardIdentity(model="board", memory_bytes=1 << 20, kernel=kernel),
            "operations": tuple(
                OperationCost(
                    op=spec.key,
                    workspace_bytes=0,
                    warm=Cost(time_s=time_s, trials=5),
                    cold=Cost(time_s=time_s.scaled(2.0), trials=5),
                )
                for spec, time_s in costs.items()
            ),
            **fields,
        }
    )


def sweep(read_s: float) -> StorageCosts:
    points = tuple(
        SweepPoint(bytes=512 << k, time_s=interval(read_s * 2**k, read_s / 100)) for k in range(3)
    )
    cost = AffinePageCost(fixed_s=0.0, per_page_s=read_s, sweep=points)
    return StorageCosts(medium="sd", page_bytes=512, method="", read=cost, write=cost)


def test_a_profile_does_not_differ_from_itself() -> None:
    one = profile({RELU: interval(1e-3, 1e-5), ADD: interval(2e-3)}, storage=sweep(1e-3))
    comparison = compare(one, one)
    assert comparison.figures
    assert not comparison.differences
    assert not comparison.circumstances


def test_only_figures_beyond_their_intervals_differ() -> None:
    one = profile({RELU: interval(1.0, 0.1), ADD: interval(1.0, 0.1)})
    other = profile({RELU: interval(1.15, 0.1), ADD: interval(1.5, 0.1)})
    comparison = compare(one, other)
    found = comparison.differences
    assert [difference.what for difference in found] == [f"warm {ADD.key}", f"cold {ADD.key}"]
    assert found[0].ratio == pytest.approx(1.5)
    assert 1.01 < comparison.least_ratio(found[0]) < 1.4


def test_storage_and_idle_power_are_compared_too() -> None:
    one = profile({RELU: interval(1.0)}, storage=sweep(1e-3), idle_power_w=interval(2.0, 0.1))
    other = profile({RELU: interval(1.0)}, storage=sweep(2e-3), idle_power_w=interval(3.0, 0.1))
    found = {difference.what: difference.ratio for difference in compare(one, other).differences}
    assert found["read of 512 bytes"] == pytest.approx(2.0)
    assert found["write of 2048 bytes"] == pytest.approx(2.0)
    assert found["idle for 1 s"] == pytest.approx(1.5)


bounds = st.tuples(*[st.floats(1e-9, 1e3)] * 3).map(sorted)


@settings(derandomize=True)
@given(bounds, bounds, st.floats(1e-6, 0.5))
def test_swapping_the_profiles_inverts_the_ratios(
    a: list[float], b: list[float], level: float
) -> None:
    one, other = (Interval(low=x[0], median=x[1], high=x[2]) for x in (a, b))
    there, back = Difference("x", "time_s", one, other), Difference("x", "time_s", other, one)
    assert there.p_value == pytest.approx(back.p_value)
    assert there.ratio * back.ratio == pytest.approx(1.0)
    nearest = there.least_ratio(level)
    assert nearest * back.least_ratio(level) == pytest.approx(1.0)
    assert (nearest != 1.0) == (there.p_value < level)
    assert min(there.ratio, 1 / there.ratio) <= min(nearest, 1 / nearest)


def test_costs_in_context_are_compared_only_with_each_other() -> None:
    one = made_up_profile([RELU, ADD])
    other = in_context(one, RELU.key, 3.0)
    comparison = compare(one, other)
    assert not comparison.differences
    used = ("costs that are used", "cold", "cold, in context for 1")
    assert used in comparison.circumstances
    again = compare(other, in_context(one, RELU.key, 30.0)).differences
    assert {found.what for found in again} == {f"in context {RELU.key}"}
    assert [found.ratio for found in again] == [pytest.approx(10.0)] * 2


@pytest.mark.parametrize(
    ("freedom", "factor", "differs"),
    [(None, 1.05, False), (None, 2.0, True), (20, 1.001, False), (20, 1.05, True)],
)
def test_costs_in_context_differ_only_beyond_what_sittings_do(
    freedom: float | None, factor: float, differs: bool
) -> None:
    """Steps of one sitting agree within 0.1 %; sittings of the operation differ by 10 %.

    An interval with degrees of freedom is that of a later sitting, in its context.
    """

    def measured(context_s: float) -> DeviceProfile:
        one = in_context(profile({RELU: interval(1.0, 0.1)}), RELU.key, context_s)
        (operation,) = one.operations
        assert operation.in_context is not None
        narrow = interval(context_s, 0.001 * context_s).model_copy(update={"freedom": freedom})
        context = operation.in_context.model_copy(update={"time_s": narrow})
        return one.changed(operations=[operation.model_copy(update={"in_context": context})])

    found = {figure.what for figure in compare(measured(1.0), measured(factor)).differences}
    assert (f"in context {RELU.key}" in found) == differs


def test_diff_says_that_single_blocks_cannot_be_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, median_s in (("a", 1e-3), ("b", 1.001e-3)):
        (tmp_path / f"{name}.yaml").write_text(dump_yaml(profile({RELU: interval(median_s)})))
    assert cli.main(["diff", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "0 differ" in shown
    assert "2 figures have no interval in either profile" in shown


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    one = profile({RELU: interval(1e-3, 1e-5)})
    other = profile({RELU: interval(2e-3, 1e-5), ADD: interval(1.0)}, kernel="another")
    for name, written in (("a", one), ("b", other)):
        (tmp_path / f"{name}.yaml").write_text(dump_yaml(written))
    return str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")


def test_diff_command_shows_differences_and_circumstances(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["diff", *files]) == 0
    shown = capsys.readouterr().out
    assert "2 figures are in both profiles, A (estimated) and B (estimated); 2 differ\n" in shown
    assert re.search(r"warm relu.forward elements=64 +1 ms ±1 % +2 ms ±0.5 % ", shown)
    assert "+100.00 %" in shown
    assert "At most 5% of the differences are expected to be false." in shown
    assert re.search(r"with a probability of 90%: of one figure \+[\d.]+ % \(median", shown)
    assert f"only in {files[1]}: {ADD.key}" in shown
    assert "board.kernel: one | another" in shown


def test_the_document_has_every_difference(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["diff", *files, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [found["ratio"] for found in document["differences"]] == [pytest.approx(2.0)] * 2
    assert document["only_second"] == [ADD.key]
    assert all(found["p_value"] < 1e-3 for found in document["differences"])
    one, every = (document["visible"][name]["median"] for name in ("one_figure", "all_figures"))
    assert 1.0 < every < one < 2.0


def test_diff_document_is_valid_json_when_a_figure_is_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, median_s in (("a", 0.0), ("b", 1e-3)):
        written = profile({RELU: interval(median_s)}, energy_source="published")
        (tmp_path / f"{name}.yaml").write_text(dump_yaml(written))
    files = (str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"))
    assert cli.main(["diff", *files, "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [found["ratio"] for found in document["differences"]] == [None, None]
    assert document["energy_sources"] == ["published", "published"]


def test_missing_profile_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "m4", "nowhere.yaml"]) == 2
    assert "nowhere" in capsys.readouterr().err
