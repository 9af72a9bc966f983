"""The operations of a training step, their operands, and their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devices.operation import OperationError, OpSpec
from networks.models import build_model
from networks.training import (
    Network,
    NetworkError,
    Optimizer,
    StepOp,
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)
from networks.training.network import Value
from networks.training.selection import select_trained
from solver.constructed import keep_everything
from solver.costing.uncosted import uncosted_graph
from solver.problem.liveness import with_frees
from solver.problem.schedule import Compute
from solver.referee.referee import replay
from tests.support.networks.training import (
    op,
    small_convolutional,
    small_gated,
    small_recurrent,
    small_transformer,
    sum_of_losses,
)


def index(step: TrainingStep, name: str) -> int:
    return [op.name for op in step.ops].index(name)


def test_a_convolutions_input_gradient_reads_its_weight_but_not_its_input() -> None:
    step = training_step(small_convolutional())
    assert op(step, "branch.input_gradient").reads == (
        "branch.norm.input_gradient",
        "branch.weight",
    )
    assert op(step, "branch.parameter_gradient").reads == (
        "stem.relu.output",
        "branch.norm.input_gradient",
    )


def test_relus_gradient_reads_its_output() -> None:
    step = training_step(small_convolutional())
    assert op(step, "join.relu.input_gradient").reads == (
        "join.relu.output",
        "pool.input_gradient",
    )


def test_batch_norms_input_gradient_reads_its_parameter_gradients() -> None:
    step = training_step(small_convolutional())
    reads = op(step, "stem.norm.input_gradient").reads
    assert {"stem.norm.scale_gradient", "stem.norm.shift_gradient"} <= set(reads)


def test_both_branches_of_an_add_share_its_gradient() -> None:
    step = training_step(small_convolutional())
    assert not [op.name for op in step.ops if op.layer == "join" and op.phase == "backward"]
    assert op(step, "branch.norm.input_gradient").reads[1] == "join.relu.input_gradient"
    assert "join.relu.input_gradient" in op(step, "stem.relu.output.gradient_sum1.accumulate").reads


def test_sum_overwrites_an_operand_without_other_readers() -> None:
    step = training_step(small_convolutional())
    accumulate = op(step, "stem.relu.output.gradient_sum1.accumulate")
    assert accumulate.reads == ("branch.input_gradient", "join.relu.input_gradient")
    assert accumulate.in_place == {"stem.relu.output.gradient_sum1": "branch.input_gradient"}
    # The identity branch is the first operand in the model; the gradients still need it.
    assert op(step, "join.forward").reads == ("branch.norm.output", "stem.relu.output")
    assert op(step, "join.forward").in_place == {"join.output": "branch.norm.output"}


def test_the_first_layer_has_no_input_gradient() -> None:
    step = training_step(small_convolutional())
    assert "stem.input_gradient" not in {op.name for op in step.ops}
    assert "stem.parameter_gradient" in {op.name for op in step.ops}


def test_a_parameter_is_updated_right_after_its_last_reader() -> None:
    step = training_step(small_convolutional())
    names = [op.name for op in step.ops]
    at = names.index("branch.parameter_gradient")
    assert names[at : at + 4] == [
        "branch.parameter_gradient",
        "branch.bias.update",
        "branch.input_gradient",
        "branch.weight.update",
    ]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_every_parameter_is_updated_once_and_persists(optimizer: Optimizer) -> None:
    step = training_step(small_convolutional(), optimizer)
    updates = [op for op in step.ops if op.name.endswith(".update")]
    expected = {"stem.weight", "stem.norm.scale", "stem.norm.shift"}
    expected |= {"branch.weight", "branch.bias", "branch.norm.scale", "branch.norm.shift"}
    expected |= {"classifier.weight", "classifier.bias"}
    assert sorted(update.reads[0] for update in updates) == sorted(expected)
    for update in updates:
        assert update.phase == "update"
        assert not update.recomputable
        assert set(update.in_place) == set(update.writes)
        assert all(step.tensor[name].persist == "ram" for name in update.writes)


def test_momentum_keeps_a_velocity_for_every_parameter() -> None:
    step = training_step(small_convolutional(), "momentum")
    velocity = step.tensor["stem.weight.velocity"]
    assert (velocity.kind, velocity.home) == ("optimizer_state", "ram")
    assert velocity.bytes == step.tensor["stem.weight"].bytes
    assert op(step, "stem.weight.update").in_place == {
        "stem.weight.next": "stem.weight",
        "stem.weight.next_velocity": "stem.weight.velocity",
    }


@pytest.mark.parametrize(("optimizer", "weight_decay"), [("adam", 0.0), ("adamw", 0.01)])
def test_adam_keeps_two_moments_and_their_corrections(
    optimizer: Optimizer, weight_decay: float
) -> None:
    step = training_step(small_convolutional(), optimizer)
    weight_bytes = step.tensor["stem.weight"].bytes
    sizes = {"first_moment": weight_bytes, "second_moment": weight_bytes, "corrections": 8}
    for state, size_bytes in sizes.items():
        tensor = step.tensor[f"stem.weight.{state}"]
        assert (tensor.kind, tensor.bytes) == ("optimizer_state", size_bytes)
        assert step.tensor[f"stem.weight.next_{state}"].persist == "ram"
    update = op(step, "stem.weight.update")
    assert set(update.in_place) == set(update.writes)
    assert update.scalars["weight_decay"] == weight_decay


def test_running_statistics_move_once_a_step() -> None:
    step = training_step(small_convolutional())
    update = op(step, "stem.norm.statistics_update")
    assert (update.phase, update.recomputable) == ("update", False)
    assert step.tensor["stem.norm.running_mean"].home == "ram"
    assert step.tensor["stem.norm.next_running_mean"].persist == "ram"
    assert op(step, "stem.norm.forward").recomputable


def test_frozen_statistics_are_read_kept_and_never_written() -> None:
    step = training_step(small_gated())
    for name in ("stem.norm.mean", "stem.norm.variance"):
        assert (step.tensor[name].home, step.tensor[name].persist) == ("ram", "ram")
        assert not any(name in (*each.writes, *each.in_place.values()) for each in step.ops)
    assert step.parameter_count == sum(
        step.tensor[each.reads[0]].bytes // 4 for each in step.ops if each.phase == "update"
    )


def test_both_factors_of_a_product_get_a_gradient() -> None:
    net = Network("square", 1)
    x = net.linear("linear", net.input("vector", 1, 3), 2)
    x = net.linear("classifier", net.multiply("square", x, x), 2)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    step = training_step(net)
    reads = ("classifier.input_gradient", "linear.output")
    assert op(step, "square.left_gradient").reads == reads
    assert op(step, "square.right_gradient").reads == reads
    (total,) = (each for each in step.ops if each.spec.kind == "gradient.accumulate")
    assert total.reads == ("square.left_gradient", "square.right_gradient")
    assert op(step, "square.forward").in_place == {}


def test_the_last_gradient_of_a_layer_overwrites_the_output_gradient() -> None:
    step = training_step(small_gated())
    for first, last in (
        ("excited.factor_gradient", "excited.input_gradient"),
        ("product.left_gradient", "product.right_gradient"),
        ("stem.norm.parameter_gradient", "stem.norm.input_gradient"),
    ):
        assert index(step, first) < index(step, last)
        assert op(step, first).in_place == {}
        (overwritten,) = op(step, last).in_place.values()
        assert overwritten in op(step, first).reads


@pytest.mark.parametrize("layer", ["lstm", "gru", "relu_cell", "tanh_cell"])
def test_a_hidden_weights_gradient_follows_the_gradients_that_it_reads(layer: str) -> None:
    step = training_step(small_recurrent())
    first, second = f"{layer}.input_gradient", f"{layer}.parameter_gradient"
    assert index(step, first) < index(step, second) < index(step, f"{layer}.hidden_weight.update")
    assert set(op(step, first).writes) <= set(op(step, second).reads)


def test_gates_overwrite_those_of_the_input_and_their_gradients_overwrite_them() -> None:
    step = training_step(small_recurrent())
    for layer in ("lstm", "gru"):
        assert op(step, f"{layer}.forward").in_place == {f"{layer}.gates": f"{layer}.input.output"}
        gradient = op(step, f"{layer}.input_gradient").in_place
        assert gradient[f"{layer}.input_gates_gradient"] == f"{layer}.gates"


def test_a_longer_sequence_needs_no_more_operations() -> None:
    def operations(steps: int) -> list[str]:
        net = Network("sequence", 2)
        x = net.recurrent("gru", "gru", net.input("frames", 2, steps, 3), 4)
        net.softmax_cross_entropy("loss", x, net.input("labels", 2, steps))
        return [each.name for each in training_step(net).ops]

    assert operations(3) == operations(300)


def test_only_the_gradients_that_are_needed_are_computed() -> None:
    net = small_recurrent()
    select_trained(net, ["tanh_cell.hidden_weight", "gru.input.*"])
    backward = [each.name for each in training_step(net).ops if each.phase == "backward"]
    assert "gru.parameter_gradient" not in backward
    assert "tanh_cell.parameter_gradient" in backward
    assert not [name for name in backward if name.startswith("lstm")]


def test_a_final_cell_without_the_output_is_an_error() -> None:
    net = Network("cell", 2)
    gates = net.linear("gates", net.input("frames", 2, 5, 3), 16)
    spec = OpSpec.of(
        "lstm.forward",
        **{"steps": 5, "batch": 2, "hidden": 4, "bias": 0, "batch_first": 1, "reverse": 0},
        **{"initial_hidden": 0, "initial_cell": 0, "final_cell": 1},
    )
    net.append("lstm", spec, (gates, Value("weight", (16, 4), "parameter", trained=True)))
    net.softmax_cross_entropy("loss", net.layers[-1].writes[-1], net.input("labels", 2))
    with pytest.raises(NetworkError, match="other results of lstm, but not on its output"):
        training_step(net)


@pytest.mark.parametrize("network", [small_transformer, small_gated, small_recurrent])
def test_nothing_with_another_reader_is_overwritten(network: Callable[[], Network]) -> None:
    """Only updates overwrite a tensor with other readers, with two exceptions.

    A layer's output gradient may be overwritten once its other gradients have been computed, and
    the predictions once the loss has been.
    """
    step = training_step(network())
    readers: dict[str, list[StepOp]] = {}
    for each in step.ops:
        for name in each.reads:
            readers.setdefault(name, []).append(each)
    overwritten = 0
    for position, each in enumerate(step.ops):
        for name in each.in_place.values() if each.recomputable else ():
            overwritten += 1
            others = [reader for reader in readers[name] if reader is not each]
            assert all(
                (other.layer, each.phase) == (each.layer, "backward")
                and (other.phase == "backward" or "loss.loss" in other.writes)
                and index(step, other.name) < position
                for other in others
            )
            assert step.tensor[name].kind in {"activation", "gradient"}
    assert overwritten > 5


def test_four_gradients_are_added_one_by_one_in_order() -> None:
    """The input of an attention layer is read by query, key, value and the shortcut."""
    step = training_step(small_transformer())
    sums = [op for op in step.ops if op.layer.startswith("embed.norm.output.gradient_sum")]
    assert len(sums) == 3
    assert all(sums[k].writes[0] in sums[k + 1].reads for k in range(2))
    assert index(step, sums[0].name) < index(step, "query.parameter_gradient")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_plain_sum_of_losses_needs_no_gradient_of_its_own(accumulate: int) -> None:
    step = training_step(sum_of_losses(3, 5), accumulate=accumulate)
    used = {name for op in step.ops for name in (*op.reads, *op.writes)}
    assert {tensor.name for tensor in step.tensors} == used
    in_storage = with_parameters_in_storage(step)
    assert in_storage.tensor["body.weight"].home == "storage"


def test_a_batch_norm_of_one_value_for_each_channel_is_remarked() -> None:
    (remark,) = build_model("autoencoder", 1).remarks
    assert remark.startswith("autoencoder, batch 1: a batch norm of one value for each channel, ")
    assert remark.endswith(
        "such as linear1.norm, gives the same whatever it reads, so that no"
        " layer before it learns; choose --batch 2 or more"
    )
    assert build_model("autoencoder", 2).remarks == build_model("resnet8", 1).remarks == ()


def test_each_dropout_has_its_own_seed_and_reuses_it_in_the_backward_pass() -> None:
    step = training_step(small_transformer())
    forward = [op for op in step.ops if op.spec.kind == "dropout.forward"]
    assert len({op.scalars["seed"] for op in forward}) == len(forward) == 2
    for each in forward:
        assert op(step, f"{each.layer}.input_gradient").scalars == each.scalars


def test_loss_ends_the_forward_pass_and_persists() -> None:
    step = training_step(small_transformer())
    assert [op.name for op in step.ops if op.phase == "forward"][-1] == "loss.forward"
    assert step.tensor["loss.loss"].persist == "ram"


@pytest.mark.parametrize("layer", ["branch", "classifier"])
def test_exchanged_gradients_of_a_layer_need_no_less_memory(layer: str) -> None:
    step = training_step(small_convolutional())
    assert local_peak(step, layer, exchanged=False) <= local_peak(step, layer, exchanged=True)


def test_attention_computes_the_value_gradient_first() -> None:
    """The weights are sequence × sequence, and are freed after the value gradient is computed."""
    step = training_step(small_transformer())
    layer = "attention.context"
    assert index(step, f"{layer}.value_gradient") < index(step, f"{layer}.weights_gradient")
    assert local_peak(step, layer, exchanged=False) < local_peak(step, layer, exchanged=True)


def local_peak(step: TrainingStep, layer: str, *, exchanged: bool) -> int:
    """Peak RAM in bytes during a layer's gradient operations, in their order or ``exchanged``."""
    graph = uncosted_graph(step)
    first, second = (op.name for op in step.ops if op.layer == layer and op.phase == "backward")
    ops = list(graph.ops)
    at = {op.name: position for position, op in enumerate(ops)}
    if exchanged:
        ops.insert(at[first], ops.pop(at[second]))
    moments = replay(graph, with_frees(graph, [Compute(op=op.name) for op in ops])).moments
    return max(
        moment.bytes_during
        for moment in moments
        if isinstance(moment.action, Compute) and moment.action.op in (first, second)
    )


def test_flattening_overwrites_a_pooled_image() -> None:
    step = training_step(small_convolutional())
    assert op(step, "flatten.forward").in_place == {"flatten.output": "pool.output"}


def test_the_graph_is_a_valid_scheduling_problem() -> None:
    graph = uncosted_graph(training_step(small_transformer()))
    assert replay(graph, keep_everything(graph)).energy_j == 0


def test_a_layer_that_the_loss_does_not_depend_on_has_no_gradient() -> None:
    net = Network("dead end", 1)
    image = net.input("image", 1, 4)
    x = net.linear("classifier", image, 2)
    net.relu("unused", x)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    assert "unused.input_gradient" not in {op.name for op in training_step(net).ops}


def test_a_parameter_that_the_loss_does_not_depend_on_is_an_error() -> None:
    net = Network("dead end", 1)
    image = net.input("image", 1, 4)
    net.linear("unused", image, 2)
    x = net.linear("classifier", image, 2)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    with pytest.raises(NetworkError, match=r"dead end: the loss does not depend on unused\.weight"):
        training_step(net)


def test_a_network_without_a_loss_is_an_error() -> None:
    net = Network("endless", 1)
    net.linear("classifier", net.input("image", 1, 4), 2)
    with pytest.raises(NetworkError, match="endless: the network has no loss"):
        training_step(net)


def test_layers_refuse_inputs_that_do_not_fit() -> None:
    net = Network("wrong", 1)
    image = net.input("image", 1, 3, 8, 8)
    with pytest.raises(NetworkError, match="two layers or inputs are named 'image'"):
        net.input("image", 1)
    with pytest.raises(NetworkError, match=r"sum: .* \(1, 3, 8, 8\), .* \(1, 192\)"):
        net.add("sum", image, net.flatten("flatten", image))
    with pytest.raises(NetworkError, match="takes an image of 4 axes"):
        net.conv2d("conv", net.input("vector", 1, 8), 4, 3)
    with pytest.raises(NetworkError, match=r"up: output_padding is 2, .* the stride 2"):
        net.conv_transpose2d("up", image, 4, 3, stride=2, output_padding=2)
    with pytest.raises(OperationError, match="groups=2 must divide both in_channels=3 and"):
        net.conv_transpose2d("grouped", image, 4, 3, groups=2)
    with pytest.raises(NetworkError, match="six: bounds are 6 and 0, they must be finite and"):
        net.clamp("six", image, 6.0, 0.0)
    with pytest.raises(NetworkError, match=r"leaky: slope is -0\.1, it must be finite and"):
        net.leaky_relu("leaky", image, -0.1)
