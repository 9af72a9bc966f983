"""Tensors that are paged without their zeros: when, and at which costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.profile import (
    DeviceProfile,
    Interval,
    PackedTensor,
    ProfiledNetwork,
    StepCosts,
    StorageCosts,
)
from networks.models import build_model
from networks.training.packing import packable, packing_spec, packing_specs
from solver.constructed import page_everything
from solver.costing.costing import cost_graph
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget
from solver.referee.referee import replay
from tests.support.graphs.profiles import made_up_profile

STEP = build_model("digits", 8)
MEASURED = made_up_profile([*STEP.costed_specs, *packing_specs(STEP)])


def storage(**changes: object) -> StorageCosts:
    assert MEASURED.storage is not None
    return MEASURED.storage.model_copy(update=changes)


def counted(shares: dict[str, float], profile: DeviceProfile = MEASURED) -> DeviceProfile:
    """The profile with counts: these shares are left of these tensors, ±10 %."""
    packed = []
    for name, share in shares.items():
        whole = STEP.tensor[name].bytes
        left = Interval(
            median=share * whole, low=0.9 * share * whole, high=min(1.1 * share * whole, whole)
        )
        each = PackedTensor(tensor=name, bytes=whole, packed_bytes=left, runs_bytes=(left.median,))
        packed.append(each)
    network = ProfiledNetwork(model="digits", batch=8, optimizer="sgd")
    costs = StepCosts(
        network=network, sittings=(), correlation=0.0, places=(), packed=tuple(packed)
    )
    return profile.changed(step_costs=(costs,))


def graph(profile: DeviceProfile) -> CostedGraph:
    return cost_graph(STEP, profile).graph


LARGEST = max(packable(STEP), key=lambda tensor: tensor.bytes).name


def test_a_packed_transfer_costs_packing_and_what_is_left() -> None:
    profile = counted({LARGEST: 0.5})
    tensor, plain = graph(profile).tensor[LARGEST], graph(MEASURED).tensor[LARGEST]
    assert (plain.packed_bytes, tensor.packed_bytes) == (None, tensor.bytes // 2)
    medium = storage()
    for way, cost, transfer in (
        ("page_out", tensor.page_out, medium.write_cost(tensor.bytes // 2)),
        ("page_in", tensor.page_in, medium.read_cost(tensor.bytes // 2)),
    ):
        assert way in ("page_out", "page_in")
        packing = profile.by_spec[packing_spec(way, tensor.bytes)].cold
        assert cost is not None
        assert packing.energy_j is not None
        assert transfer[1] is not None
        assert cost.time_s == pytest.approx(transfer[0] + packing.time_s.median)
        assert cost.energy_j == pytest.approx(transfer[1] + packing.energy_j.median)
        assert cost.time_s_interval is not None
        low, high = cost.time_s_interval
        assert low < cost.time_s < high


def test_erase_blocks_are_those_of_the_whole_tensor() -> None:
    erased = storage(
        erase_block_bytes=65536,
        erase=MEASURED.storage and MEASURED.storage.write,
    )
    profile = counted({LARGEST: 0.5}, MEASURED.changed(storage=erased))
    tensor = graph(profile).tensor[LARGEST]
    packing = profile.by_spec[packing_spec("page_out", tensor.bytes)].cold.time_s.median
    expected = erased.write_cost(tensor.bytes // 2)[0] + packing
    missing = erased.erased_blocks(tensor.bytes) - erased.erased_blocks(tensor.bytes // 2)
    assert erased.erase is not None
    expected += missing * (erased.erase.fixed_s + erased.erase.per_page_s)
    assert tensor.page_out is not None
    assert tensor.page_out.time_s == pytest.approx(expected)


def test_a_board_that_moves_pages_beside_computing_packs_nothing() -> None:
    profile = counted({LARGEST: 0.1}, MEASURED.changed(storage=storage(dma=True)))
    assert all(tensor.packed_bytes is None for tensor in graph(profile).tensors)


def test_what_was_counted_of_another_size_does_not_count() -> None:
    profile = counted({LARGEST: 0.1})
    other = build_model("digits", 4)
    assert all(each.packed_bytes is None for each in cost_graph(other, profile).graph.tensors)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    shares=st.dictionaries(
        st.sampled_from([tensor.name for tensor in packable(STEP)]),
        st.floats(1 / 33, 1),
        min_size=1,
    ),
    slower=st.floats(0, 3),
)
def test_no_schedule_costs_more_with_packing(shares: dict[str, float], slower: float) -> None:
    """Whatever packing costs, and whatever is left."""
    specs = {spec.key for spec in packing_specs(STEP)}

    def scaled(cost: Interval | None) -> Interval | None:
        return None if cost is None else cost.scaled(10**slower)

    operations = tuple(
        each.model_copy(
            update={
                "cold": each.cold.model_copy(
                    update={
                        "time_s": scaled(each.cold.time_s),
                        "energy_j": scaled(each.cold.energy_j),
                    }
                )
            }
        )
        if each.op in specs
        else each
        for each in MEASURED.operations
    )
    base = MEASURED.changed(operations=operations)
    plain, packed = graph(base), graph(counted(shares, base))
    for one, other in zip(plain.tensors, packed.tensors, strict=True):
        if other.packed_bytes is None:
            assert other == one
            continue
        assert one.name in shares
        assert other.packed_bytes == math.ceil(shares[one.name] * one.bytes)
        for ours, theirs in ((other.page_out, one.page_out), (other.page_in, one.page_in)):
            assert ours is not None
            assert theirs is not None
            assert ours.time_s < theirs.time_s
            assert ours.energy_j < theirs.energy_j
    actions = page_everything(Problem(plain, Budget(ram_bytes=1 << 30)))
    before, after = replay(plain, actions), replay(packed, actions)
    assert after.energy_j <= before.energy_j
    assert after.bytes_written_to_storage <= before.bytes_written_to_storage
    assert after.peak_bytes == before.peak_bytes


def test_only_what_lives_within_a_step_is_packable() -> None:
    found = {tensor.name for tensor in packable(STEP)}
    assert found
    for tensor in STEP.tensors:
        if tensor.home is not None or tensor.persist is not None or tensor.bytes < 1024:
            assert tensor.name not in found
    rows = replace(STEP.tensor[LARGEST], stretches=2)
    others = tuple(rows if each.name == LARGEST else each for each in STEP.tensors)
    assert LARGEST not in {each.name for each in packable(replace(STEP, tensors=others))}
