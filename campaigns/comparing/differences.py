"""In what two sides of a comparison differ, apart from their measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from campaigns.comparing.sides import Side
from campaigns.design.cells import NetworkLevel
from campaigns.keeping.results import CellResult

_MOST_SHOWN = 120


def differences(
    pairs: Iterable[tuple[CellResult, CellResult]], sides: tuple[Side, Side]
) -> list[str]:
    """Sentences on what differs between corresponding cells, each once.

    Args:
        pairs: The corresponding cells.
        sides: The sides that they are from.
    """
    found: dict[str, None] = {}
    first, second = (side.results.design for side in sides)
    if first.kernels_sha256 != second.kernels_sha256:
        found["sources of the kernels"] = None
    if first.steps != second.steps:
        found[f"steps of a replay: {first.steps} and {second.steps}"] = None
    for name in ("profile_blocks", "watch_steps"):
        before, after = getattr(first, name), getattr(second, name)
        if None not in (before, after) and before != after:
            found[f"{name}: {_shown(before)} and {_shown(after)}"] = None
    if first.budget_covers != second.budget_covers:
        found[f"budget_covers: {first.budget_covers} and {second.budget_covers}"] = None
    for pair in pairs:
        found.update(dict.fromkeys(_of_pair(*pair, sides)))
    return list(found)


def _of_pair(before: CellResult, after: CellResult, sides: tuple[Side, Side]) -> Iterator[str]:
    board = before.cell.board
    if before.cell.board == after.cell.board:
        yield from _differing(
            f"description of {board}",
            _data(before.setting.description),
            _data(after.setting.description),
        )
        if before.setting.profile != after.setting.profile:
            yield f"profile of {board}"
    else:
        yield f"board: {before.cell.board} and {after.cell.board}"
    first, second = (side.results.design for side in sides)
    methods = (
        first.method_by_name[before.cell.method],
        second.method_by_name[after.cell.method],
    )
    if methods[0].method != methods[1].method:
        yield f"method: {methods[0].method} and {methods[1].method}"
    else:
        yield from _differing(f"method {before.cell.method}", *map(_data, methods))
    networks = (
        first.network_by_name[before.cell.network],
        second.network_by_name[after.cell.network],
    )
    yield from _differing(f"network {before.cell.network}", *map(_trained, networks))
    if networks[0].sha256 != networks[1].sha256:
        yield f"file of network {before.cell.network}"
    for name in ("ram_budget", "deadline"):
        yield from _differing(
            name, {"": getattr(before.cell, name)}, {"": getattr(after.cell, name)}
        )
    yield from _differing_ram(before, after)
    yield from _differing(f"measuring of {board}", _circumstances(before), _circumstances(after))


def _differing_ram(before: CellResult, after: CellResult) -> Iterator[str]:
    """Budgets of the same words that are not the same RAM: shares of different peaks."""
    assert before.solved is not None, "cells without results are not compared"
    assert after.solved is not None, "cells without results are not compared"
    old, new = before.solved.asked_ram_bytes, after.solved.asked_ram_bytes
    if before.cell.ram_budget == after.cell.ram_budget and old != new:
        named = f"{before.cell.network}, {before.cell.ram_budget}"
        yield f"RAM budget of {named}: {old} bytes and {new} bytes"


def _trained(network: NetworkLevel) -> dict[str, Any]:
    """How a network is trained. The hash of its file identifies it, not the file's place."""
    data = _data(network.choice)
    if network.sha256 is not None:
        del data["model"]
    return data


def _circumstances(result: CellResult) -> dict[str, Any]:
    """Board, compiler, meter and program, as the replays of a cell state them.

    A firmware's identity is left out: its plan, which is that of the schedule, is part of it. Its
    kernels and flags are identified by the hash of their sources and the description.
    """
    description = result.setting.description
    has_firmware = description is not None and description.firmware is not None
    found: dict[str, Any] = {}
    for repetition in result.repetitions:
        board, build = repetition.board, repetition.build
        for name, value in (
            ("board", board.model),
            ("serial number", board.serial),
            ("kernel", None if has_firmware else board.kernel),
            ("governor", board.governor),
            ("storage card", board.storage_card),
            ("compiler", build.compiler),
            ("matrix products", build.matmul),
            ("meter", None if repetition.meter is None else repetition.meter.kind),
            ("source of the joules", repetition.measured_energy_source),
            ("host", repetition.circumstances.host),
            ("program", repetition.circumstances.program),
        ):
            known = found.setdefault(name, str(value))
            if str(value) not in known.split(" or "):
                found[name] = f"{known} or {value}"
    return found


def _data(model: Any) -> dict[str, Any]:
    if model is None:
        return {}
    data: dict[str, Any] = model.model_dump(mode="json", by_alias=True)
    return {key: value for key, value in data.items() if key != "label"}


def _differing(where: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """The keys in which two documents differ, with both values."""
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if old == new or (not before and where.startswith("measuring")):
            continue
        place = f"{where}, {key}" if key else where
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differing(place, old, new)
        else:
            yield f"{place}: {_shown(old)} and {_shown(new)}"


def _shown(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"
