"""Training steps with parameters in storage: their paging, their updates, their results.

Small ones are solved to the optimum although their parameters do not fit into RAM.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.operation import OpSpec
from devices.profile import DeviceProfile
from devices.published import load_published
from networks.models import build_model, model_names
from networks.training import (
    Network,
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)
from networks.training.initial import initial_values
from networks.training.selection import select_trained
from solver.constructed import keep_everything, page_everything
from solver.costing.costing import CostingError, cost_graph
from solver.options import Coverage, SolverOptions
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, PageIn, PageOut
from solver.referee.referee import Replay, replay, verify
from solver.solving.solving import solve_graph
from tests.support.networks.training import (
    execute,
    small_convolutional,
    small_lookups,
    small_mixture,
    small_transformer,
    start_values,
)
from tests.support.onboard.kernels import KernelLibrary, compile_library

M4 = load_published("m4")
COVERAGES: tuple[Coverage, ...] = ("all", "activations")
NETWORKS = [small_convolutional, small_transformer, small_mixture]
STEPS = [
    with_parameters_in_storage(training_step(network(), optimizer))
    for network in NETWORKS
    for optimizer in ("sgd", "momentum", "adam")
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


# --- where things live ------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_only_tensors_kept_between_steps_have_their_home_in_storage(
    step: TrainingStep,
) -> None:
    made = {name for op in step.ops for name in op.writes}
    for tensor in step.tensors:
        if tensor.kind in {"parameter", "optimizer_state"}:
            assert tensor.home == (None if tensor.name in made else "storage")
            assert tensor.persist == ("storage" if tensor.name in made else None)
        else:
            assert "storage" not in (tensor.home, tensor.persist)


def test_parameters_in_storage_change_only_homes_in_the_step() -> None:
    step = training_step(small_convolutional(), "momentum")
    moved = with_parameters_in_storage(step)
    assert moved.ops == step.ops
    assert [t.bytes for t in moved.tensors] == [t.bytes for t in step.tensors]
    assert moved.title != step.title


# --- embeddings -------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_only_embedding_rows_of_the_batch_are_paged_in(optimizer: str) -> None:
    step = with_parameters_in_storage(
        training_step(small_lookups(), "momentum" if optimizer == "momentum" else "sgd")
    )
    rows_bytes = 10 * 3 * 4
    of_table = {name: t for name, t in step.tensor.items() if name.startswith("embed.table")}
    assert len(of_table) == {"sgd": 3, "momentum": 5}[optimizer]
    for name, tensor in of_table.items():
        assert tensor.bytes == rows_bytes
        assert tensor.stretches == (1 if name.endswith("gradient") else 10)
    # A table with fewer rows than indices is paged in whole, in one piece.
    assert step.tensor["place.table"].bytes == 4 * 3 * 4
    assert step.tensor["place.table"].stretches == 1


def test_corrections_of_adam_are_common_to_all_rows_of_a_table() -> None:
    step = with_parameters_in_storage(training_step(small_lookups(), "adam"))
    corrections = step.tensor["embed.table.corrections"]
    assert (corrections.bytes, corrections.stretches, corrections.is_table) == (8, 1, False)
    moment = step.tensor["embed.table.first_moment"]
    assert (moment.bytes, moment.stretches, moment.is_table) == (10 * 3 * 4, 10, True)


@pytest.mark.parametrize(("rows", "features"), [(1, 2), (2, 1)])
def test_corrections_are_not_taken_for_rows_of_their_size(rows: int, features: int) -> None:
    net = Network("small rows", rows)
    x = net.embedding("embed", net.input("tokens", rows), 10, features)
    net.softmax_cross_entropy("loss", net.linear("out", x, 3), net.input("labels", rows))
    step = with_parameters_in_storage(training_step(net, "adam"))
    assert step.tensor["embed.table.next_second_moment"].home_stretches == 10
    for name in ("embed.table.corrections", "embed.table.next_corrections"):
        assert (step.tensor[name].stretches, step.tensor[name].home_stretches) == (1, 1)


def test_rows_of_an_activation_are_gathered_as_before() -> None:
    step = training_step(small_mixture())
    (forward,) = (op for op in step.ops if op.name == "gather.forward")
    assert forward in with_parameters_in_storage(step).ops


def test_gathered_rows_give_gradients_and_updates_of_the_whole_table(
    library: KernelLibrary,
) -> None:
    whole = training_step(small_lookups())
    by_rows = with_parameters_in_storage(whole)
    start = start_values(whole)
    start["tokens"] = start["tokens"] // 4  # some rows more than once
    tokens, table = start["tokens"].reshape(-1), start["embed.table"]
    rows, places = np.unique(tokens, return_inverse=True)
    assert 1 < len(rows) < len(tokens)
    some_rows = np.zeros((10, 3), np.float32)
    some_rows[: len(rows)] = table[rows]
    of_rows = {**start, "embed.table": some_rows, "tokens": places.astype(np.int32)}
    expected, found = execute(whole, library, start), execute(by_rows, library, of_rows)
    for name, value in expected.items():
        if not name.startswith("embed.table"):
            assert value.tobytes() == found[name].tobytes(), name
    updated = table.copy()
    updated[rows] = found["embed.table.next"].reshape(10, 3)[: len(rows)]
    assert updated.tobytes() == expected["embed.table.next"].tobytes()


def test_scattered_rows_cost_a_transfer_each() -> None:
    graph = cost_graph(with_parameters_in_storage(training_step(small_lookups())), M4).graph
    storage = M4.storage
    assert storage is not None
    page_in = graph.tensor["embed.table"].page_in
    assert page_in is not None
    assert page_in.time_s == pytest.approx(10 * storage.read_cost(12 + 4)[0])
    page_out = graph.tensor["embed.table.next"].page_out
    assert page_out is not None
    together, each = storage.write_cost(10 * 12)[0], storage.write_cost(12 + 4)[0]
    assert page_out.time_s == pytest.approx(together + 10 * each)
    whole = graph.tensor["linear.weight"].page_in
    assert whole is not None
    assert whole.time_s == pytest.approx(storage.read_cost(24)[0])


# --- problems ---------------------------------------------------------------------------------


def in_storage(model: str, optimizer: str = "sgd") -> CostedGraph:
    return cost_graph(build_model(model, 1, optimizer, "storage"), M4).graph


def parameter_bytes(graph: CostedGraph) -> int:
    return sum(tensor.bytes for tensor in graph.tensors if tensor.home == "storage")


def verified(graph: CostedGraph, actions: tuple[Action, ...], budget: Budget) -> Replay:
    """Verify a schedule, and that it pages in parameters and pages out each changed one once.

    It pages out no unchanged tensor that has its home in storage.
    """
    result = verify(graph, actions, budget)
    out = [action.tensor for action in actions if isinstance(action, PageOut)]
    assert all(graph.tensor[name].home != "storage" for name in out)
    changed = [tensor.name for tensor in graph.tensors if tensor.persist == "storage"]
    assert all(out.count(name) == 1 for name in changed)
    paged_in = {action.tensor for action in actions if isinstance(action, PageIn)}
    assert paged_in >= {tensor.name for tensor in graph.tensors if tensor.home == "storage"}
    return result


@pytest.mark.slow
@pytest.mark.parametrize("model", model_names())
def test_every_model_fits_in_far_less_than_its_parameters(model: str) -> None:
    """Paging everything fits the least RAM, without a search."""
    graph = in_storage(model, "momentum")
    least_bytes, _ = least_ram_bytes(graph)
    budget = Budget(ram_bytes=least_bytes)
    assert (
        verified(graph, page_everything(Problem(graph, budget)), budget).peak_bytes == least_bytes
    )
    if model in {"resnet18", "resnet50", "resnet18_cifar", "bert"}:
        assert parameter_bytes(graph) > 2 * least_bytes


@given(step=st.sampled_from(STEPS), slack=st.floats(0, 1), covers=st.sampled_from(COVERAGES))
@settings(max_examples=40, deadline=None)
def test_paging_everything_pages_out_only_changed_parameters(
    step: TrainingStep, slack: float, covers: Coverage
) -> None:
    graph = cost_graph(step, M4).graph
    least_bytes, _ = least_ram_bytes(graph, covers)
    kept = verified(graph, keep_everything(graph), Budget(ram_bytes=10**9, covers=covers))
    ram_bytes = least_bytes + int(slack * (kept.peak_bytes - least_bytes))
    budget = Budget(ram_bytes=ram_bytes, covers=covers)
    verified(graph, page_everything(Problem(graph, budget)), budget)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "share"),
    [
        (build_model("linear", 1, "sgd", "storage"), 0.25),
        (build_model("linear", 1, "momentum", "storage"), 0.5),
        (with_parameters_in_storage(training_step(small_transformer())), 0.5),
    ],
    ids=lambda value: value.title if isinstance(value, TrainingStep) else str(value),
)
def test_small_steps_are_solved_to_the_optimum(step: TrainingStep, share: float) -> None:
    """``share`` is the budget's position between the least RAM and that of keeping everything."""
    graph = cost_graph(step, M4).graph
    least_bytes, _ = least_ram_bytes(graph)
    kept = replay(graph, keep_everything(graph))
    budget = Budget(ram_bytes=round(least_bytes + share * (kept.peak_bytes - least_bytes)))
    schedule = solve_graph(graph, budget, SolverOptions())
    assert schedule.status == "optimal"
    assert schedule.energy_bound_j is not None
    assert schedule.energy_bound_j > kept.energy_j * (1 - SolverOptions().gap)
    result = verified(graph, schedule.actions, budget)
    assert schedule.peak_bytes == result.peak_bytes <= budget.ram_bytes


def test_without_paging_updated_parameters_are_paged_out_at_once() -> None:
    """``paging=False`` excludes only optional paging.

    An updated parameter is paged out at once: keeping it until the end would need more RAM.
    """
    graph = in_storage("linear")
    kept = replay(graph, keep_everything(graph)).peak_bytes
    budget = Budget(ram_bytes=kept, paging=False)
    result = verified(graph, page_everything(Problem(graph, budget)), budget)
    updated = sum(tensor.bytes for tensor in graph.tensors if tensor.persist == "storage")
    last = [m for m in result.moments if not isinstance(m.action, PageIn | PageOut)][-1]
    assert last.bytes_after < updated


def test_tables_need_storage_that_can_be_overwritten() -> None:
    assert M4.storage is not None
    document = M4.model_dump(by_alias=True)
    erase = {"fixed_s": 1e-3, "per_page_s": 1e-2, "fixed_j": 1e-3, "per_page_j": 1e-2}
    document["storage"] = {**document["storage"], "erase_block_bytes": 4096, "erase": erase}
    flash = DeviceProfile.model_validate(document)
    with pytest.raises(CostingError, match=r"single rows of embed\.table, which storage"):
        cost_graph(with_parameters_in_storage(training_step(small_lookups())), flash)
    assert cost_graph(build_model("linear", 1, "sgd", "storage"), flash).graph.tensors


def frozen_but(network: Network, *trained: str) -> TrainingStep:
    """A step with parameters in storage that trains only these parameters."""
    select_trained(network, trained)
    return with_parameters_in_storage(training_step(network))


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        frozen_but(small_lookups(), "linear.*"),
        frozen_but(small_transformer(), "head"),
        frozen_but(small_convolutional(), "norm"),
    ],
    ids=lambda step: step.title,
)
def test_what_no_step_changes_is_paged_in_and_leaves_ram_without_a_write(
    step: TrainingStep,
) -> None:
    graph = cost_graph(step, M4).graph
    changed = {name for op in step.ops for name in op.in_place.values()}
    frozen = {t.name for t in step.tensors if t.home == "storage" and t.name not in changed}
    assert frozen
    ample = Budget(ram_bytes=replay(graph, keep_everything(graph)).peak_bytes)
    paged = page_everything(Problem(graph, ample))
    budget = Budget(ram_bytes=replay(graph, paged).peak_bytes)
    for actions in (paged, solve_graph(graph, budget, SolverOptions()).actions):
        verified(graph, actions, budget)
        assert not frozen & {each.tensor for each in actions if isinstance(each, PageOut)}
        assert frozen <= {each.tensor for each in actions if isinstance(each, PageIn)}


def test_of_a_frozen_table_only_the_rows_of_the_batch_are_paged_in() -> None:
    step = frozen_but(small_lookups(2), "linear.*")
    table = step.tensor["embed.table"]
    assert (table.stretches, table.home_stretches, table.bytes) == (10, 40, 10 * 3 * 4)
    assert not step.tensor["place.table"].is_table  # smaller than a batch
    assert initial_values(step, 0)["embed.table"].shape == (40, 3)


def tied() -> Network:
    """An embedding and an output layer that share a table."""
    net = Network("tied", 1)
    x = net.embedding("embed", net.input("tokens", 1, 3), vocabulary=8, features=4)
    x = net.linear("mix", x, 4)
    spec = OpSpec.of("linear.forward", rows=3, in_features=4, out_features=8, bias=0)
    logits = net.append("out", spec, (x, net.layers[0].reads[1]), shape=(1, 3, 8))
    net.softmax_cross_entropy("loss", logits, net.input("labels", 1, 3))
    return net


def test_a_frozen_table_that_an_output_layer_shares_has_a_copy_for_lookups() -> None:
    step = frozen_but(tied(), "mix*")
    whole, copy = step.tensor["embed.table"], step.tensor["embed.table.lookup"]
    assert not whole.is_table
    assert (copy.stretches, copy.home_stretches) == (3, 8)
    values = initial_values(step, 0)
    assert values[copy.name].tobytes() == values[whole.name].tobytes()
    assert [op.name for op in step.ops if copy.name in op.reads] == ["embed.forward"]


def test_a_trained_table_that_an_output_layer_shares_has_no_copy() -> None:
    step = with_parameters_in_storage(training_step(tied()))
    assert "embed.table.lookup" not in step.tensor


def test_frozen_tables_may_be_in_storage_that_is_erased_in_blocks() -> None:
    assert M4.storage is not None
    document = M4.model_dump(by_alias=True)
    erase = {"fixed_s": 1e-3, "per_page_s": 1e-2, "fixed_j": 1e-3, "per_page_j": 1e-2}
    document["storage"] = {**document["storage"], "erase_block_bytes": 4096, "erase": erase}
    flash = DeviceProfile.model_validate(document)
    assert cost_graph(frozen_but(small_lookups(), "linear.*"), flash).graph.tensors


def test_parameters_in_storage_need_a_profile_with_storage() -> None:
    bare = DeviceProfile.model_validate({**M4.model_dump(by_alias=True), "storage": None})
    with pytest.raises(CostingError, match="m4: parameters cannot be kept in storage"):
        cost_graph(STEPS[0], bare)
