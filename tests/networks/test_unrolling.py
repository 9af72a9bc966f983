"""Unrolled recurrent layers: the same training in less memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.operation import OpSpec
from devices.quantities import Slices
from networks.models import build_model
from networks.training import (
    Network,
    NetworkError,
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)
from networks.training.initial import initial_values
from networks.training.network import GATES, Cell, Value
from networks.training.slicing import sliced
from networks.training.unrolling import unrolled
from solver.costing.uncosted import uncosted_graph
from solver.problem.footprint import least_ram_bytes
from tests.support.networks.training import (
    Values,
    execute,
    gradients,
    small_convolutional,
    small_recurrent,
    start_values,
)
from tests.support.onboard.kernels import KernelLibrary, compile_library
from tests.support.paths import REFERENCES

EXPORTED = REFERENCES / "exported"
WHOLE_WEIGHTS = 1 << 30


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def gates_bytes(step: TrainingStep) -> dict[str, int]:
    """Bytes of the gates of every recurrent layer."""
    return {
        op.layer: op.spec.reads[0].bytes
        for op in step.ops
        if op.phase == "forward" and op.spec.reads[0].role == "input_gates"
    }


def recurrent(
    net: Network,
    name: str,
    cell: Cell,
    x: Value,
    *,
    batch_first: bool,
    reverse: bool,
    state: Value | None = None,
    final_cell: bool = False,
) -> Value:
    """Append a layer of 3 features without biases over a sequence in either layout.

    It begins with zeros, or with a ``state`` [batch, 3]. An LSTM may give its ``final_cell``.
    """
    first, second, width = x.shape
    batch, steps = (first, second) if batch_first else (second, first)
    weight = Value(f"{name}.input.weight", (GATES[cell] * 3, width), "parameter", trained=True)
    hidden = Value(f"{name}.hidden_weight", (GATES[cell] * 3, 3), "parameter", trained=True)
    shape = (first, second, GATES[cell] * 3)
    sizes = {"rows": first * second, "in_features": width, "out_features": shape[2], "bias": 0}
    gates = net.append(
        f"{name}.input", OpSpec.of("linear.forward", **sizes), (x, weight), shape=shape
    )
    layout = {"batch_first": int(batch_first), "reverse": int(reverse)}
    layout["initial_hidden"] = int(state is not None)
    cells = {"initial_cell": 0, "final_cell": int(final_cell)} if cell == "lstm" else {}
    sizes = {"steps": steps, "batch": batch, "hidden": 3, "bias": 0}
    spec = OpSpec.of(f"{cell}.forward", **sizes, **layout, **cells)
    read = (gates, hidden) if state is None else (gates, hidden, state)
    return net.append(name, spec, read)


def beginning_with_states(cell: Cell, *, batch_first: bool) -> Network:
    """Three layers over six steps: the second begins with what a linear layer makes, the third,
    on one sample for each step of the first, with all states of the first."""
    net = Network("beginning with states", 2)
    layout = {"batch_first": batch_first, "reverse": False}
    shape = (2, 6) if batch_first else (6, 2)
    one = recurrent(net, "one", cell, net.input("x", *shape, 4), **layout)
    state = net.linear("state", net.input("z", 2, 5), 3)
    two = recurrent(net, "two", cell, net.input("w", *shape, 4), **layout, state=state)
    deep = (12, 6) if batch_first else (6, 12)
    states = replace(one, shape=(12, 3))
    three = recurrent(net, "three", cell, net.input("v", *deep, 4), **layout, state=states)
    heads = [
        net.linear(f"{name}.head", replace(x, shape=(2, x.elements // 2)), 3)
        for name, x in (("two", two), ("three", three))
    ]
    net.softmax_cross_entropy("loss", net.add("join", *heads), net.input("labels", 2))
    return net


def reading_some(
    cell: Cell, *, batch_first: bool, reverse: bool, first: int, steps: int, and_all: bool
) -> Network:
    """Two layers over seven steps; some steps of the second are classified, or all of them too."""
    net = Network("reading some", 2)
    shape = (2, 7) if batch_first else (7, 2)
    x = recurrent(
        net, "one", cell, net.input("x", *shape, 4), batch_first=batch_first, reverse=reverse
    )
    x = recurrent(net, "two", cell, x, batch_first=batch_first, reverse=not reverse)
    strides = (21, 3) if batch_first else (3, 6)  # of samples and of steps
    sizes = {"source": 42, "offset": first * strides[1], "size0": 2, "size1": steps, "size2": 3}
    copy = {"stride0": strides[0], "stride1": strides[1], "stride2": 1}
    rest = {
        f"{what}{axis}": int(what == "size") for axis in (3, 4, 5) for what in ("size", "stride")
    }
    spec = OpSpec.of("strided_copy.forward", **sizes, **copy, **rest)
    some = net.append("some", spec, (x,), shape=(2, steps * 3))
    y = net.linear("head", some, 4)
    if and_all:
        y = net.add("join", y, net.linear("other", net.flatten("flat", x), 4) if batch_first else y)
    net.softmax_cross_entropy("loss", y, net.input("labels", 2))
    return net


def reading_the_final_cell(*, batch_first: bool, reverse: bool, layers: int) -> Network:
    """One or two layers over six steps; the second classifies a step that it does early.

    The final cell of the first is classified, too.
    """
    net = Network("reading the final cell", 2)
    layout = {"batch_first": batch_first, "reverse": reverse}
    x = net.input("x", *((2, 6) if batch_first else (6, 2)), 4)
    x = recurrent(net, "one", "lstm", x, **layout, final_cell=True)
    cell = net.layers[-1].writes[-1]
    if layers == 2:
        x = recurrent(net, "two", "lstm", x, **layout)
    sample, step = (18, 3) if batch_first else (3, 6)
    size = dict(zip((f"size{axis}" for axis in range(6)), (1, 1, 1, 1, 2, 3), strict=True))
    stride = dict(zip((f"stride{axis}" for axis in range(6)), (0, 0, 0, 0, sample, 1), strict=True))
    spec = OpSpec.of(
        "strided_copy.forward", source=36, offset=5 * step if reverse else 0, **size, **stride
    )
    some = net.append("some", spec, (x,), shape=(2, 3))
    heads = [net.linear("head", some, 4), net.linear("cell.head", cell, 4)]
    net.softmax_cross_entropy("loss", net.add("join", *heads), net.input("labels", 2))
    return net


def assert_close(found: Values, expected: Values) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        size = np.abs(values).max() + 1e-3
        of_all = found[name].reshape(values.shape)  # that of a sum is flat
        np.testing.assert_allclose(of_all, values, atol=2e-5 * size, rtol=0, err_msg=name)


@pytest.mark.parametrize("name", ["keywords", "recurrent"])
@pytest.mark.parametrize("part_bytes", [1, 200, 500])
def test_gradients_of_unrolled_layers_are_those_of_pytorch(
    name: str, part_bytes: int, library: KernelLibrary
) -> None:
    """The networks have layers over layers, both directions, initial states, and cells."""
    step = sliced(build_model(str(EXPORTED / f"{name}.pt2")), Slices(WHOLE_WEIGHTS, part_bytes))
    assert step.whole is not None
    assert step.unrolled
    with np.load(EXPORTED / f"{name}.npz") as arrays:
        kept = dict(arrays)
    start = initial_values(step.whole, 0)
    for key, values in kept.items():
        if key.startswith("input."):
            kind = np.int32 if values.dtype.kind == "i" else np.float32
            start[key.removeprefix("input.")] = values.astype(kind)
    made = execute(step.whole, library, start)
    found = gradients(step.whole, made)
    expected = {key.removeprefix("gradient."): kept[key] for key in kept if "gradient." in key}
    assert_close(found, expected)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    cell=st.sampled_from(sorted(GATES)),
    batch_first=st.booleans(),
    reverse=st.booleans(),
    some=st.integers(0, 6).flatmap(lambda a: st.tuples(st.just(a), st.integers(1, 7 - a))),
    and_all=st.booleans(),
    part_bytes=st.integers(1, 700),
    in_storage=st.booleans(),
    in_place=st.booleans(),
)
def test_readers_of_some_steps_find_them(
    cell: Cell,
    batch_first: bool,
    reverse: bool,
    some: tuple[int, int],
    and_all: bool,
    part_bytes: int,
    in_storage: bool,
    in_place: bool,
    library: KernelLibrary,
) -> None:
    first, steps = some
    whole = training_step(
        reading_some(
            cell,
            batch_first=batch_first,
            reverse=reverse,
            first=first,
            steps=steps,
            and_all=and_all,
        ),
        "momentum",
    )
    if in_storage:
        whole = with_parameters_in_storage(whole)
    step = sliced(whole, Slices(WHOLE_WEIGHTS, part_bytes)).whole
    assert step is not None
    start = start_values(whole)
    made = execute(step, library, start, in_place=in_place)
    assert_close(gradients(step, made), gradients(whole, execute(whole, library, start)))


@pytest.mark.slow
@pytest.mark.parametrize("cell", sorted(GATES))
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("part_bytes", [1, 200, 500])
def test_layers_begin_with_states_that_others_make(
    cell: Cell, batch_first: bool, part_bytes: int, library: KernelLibrary
) -> None:
    whole = training_step(beginning_with_states(cell, batch_first=batch_first))
    step = sliced(whole, Slices(WHOLE_WEIGHTS, part_bytes)).whole
    assert step is not None
    assert {t.name for t in step.tensors if t.home} == {t.name for t in whole.tensors if t.home}
    start = start_values(whole)
    made = execute(step, library, start)
    assert_close(gradients(step, made), gradients(whole, execute(whole, library, start)))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_final_cell_is_read_where_no_other_late_step_is(
    batch_first: bool, reverse: bool, layers: int, library: KernelLibrary
) -> None:
    whole = training_step(
        reading_the_final_cell(batch_first=batch_first, reverse=reverse, layers=layers)
    )
    step = sliced(whole, Slices(WHOLE_WEIGHTS, 200)).whole
    assert step is not None
    start = start_values(whole)
    made = execute(step, library, start)
    assert_close(gradients(step, made), gradients(whole, execute(whole, library, start)))


@settings(deadline=None, max_examples=20, derandomize=True)
@given(part_bytes=st.integers(1, 1000), batch=st.integers(1, 3))
def test_no_layer_has_larger_gates_than_asked(
    part_bytes: int, batch: int, library: KernelLibrary
) -> None:
    whole = training_step(small_recurrent(batch))
    network = unrolled(whole.network, part_bytes)
    step = training_step(network)
    of_a_step = {name: each // 5 for name, each in gates_bytes(whole).items()}
    for layer, found in gates_bytes(step).items():
        assert found <= max(part_bytes, of_a_step[layer.partition("[")[0]])
    assert (network is whole.network) == (max(gates_bytes(whole).values()) <= part_bytes)
    start = start_values(whole)
    assert_close(
        gradients(step, execute(step, library, start)),
        gradients(whole, execute(whole, library, start)),
    )


def test_unrolled_layers_fit_into_less_memory() -> None:
    """Sequences take more than weights; what is read is the last state."""
    net = Network("long", 1)
    x = net.input("x", 1, 64, 4)
    for name in ("one", "two"):
        x = recurrent(net, name, "gru", x, batch_first=True, reverse=False)
    spec = {"source": 192, "offset": 189, "size0": 3, "stride0": 1}
    rest = {
        f"{what}{axis}": int(what == "size") for axis in range(1, 6) for what in ("size", "stride")
    }
    x = net.append("last", OpSpec.of("strided_copy.forward", **spec, **rest), (x,), shape=(1, 3))
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    whole = with_parameters_in_storage(training_step(net))
    step = sliced(whole, Slices(WHOLE_WEIGHTS, 8 * 36))
    before, after = (least_ram_bytes(uncosted_graph(each))[0] for each in (whole, step))
    assert gates_bytes(step) == {
        f"{name}[{first}:{first + 8}]": 8 * 36
        for name in ("one", "two")
        for first in range(0, 64, 8)
    }
    assert after < before / 2
    assert not [op.name for op in step.ops if op.spec.family == "concat"]


def test_too_many_steps_are_refused() -> None:
    net = Network("longer", 1)
    x = net.input("x", 1, 2000, 2)
    x = recurrent(net, "one", "rnn_tanh", x, batch_first=True, reverse=False)
    net.mean_squared_error("loss", x, net.input("target", 1, 2000, 3))
    step = training_step(net)
    with pytest.raises(NetworkError, match=r"2000 layers of 1 .* choose larger slices"):
        sliced(step, Slices(WHOLE_WEIGHTS, 12))
    assert sliced(step, Slices(WHOLE_WEIGHTS, 1200)).unrolled


def test_a_network_without_long_sequences_stays_as_it_is() -> None:
    for build in (small_convolutional, small_recurrent):
        network = build()
        assert unrolled(network, 10_000) is network
    step = training_step(small_convolutional())
    assert not sliced(step, Slices(100, 100)).unrolled
