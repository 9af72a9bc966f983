"""ONNX files: losses and gradients of the reference implementation, and refusals that say what to
do."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from devices.errors import Defect
from devices.program import installing_extra
from networks.exported.errors import ExportError
from networks.models import ModelError, build_model, file_sha256
from networks.training import TrainingStep
from networks.training.initial import initial_values
from replay.directory import has_trained_model
from tests.support.failures import sentence_of
from tests.support.networks.onnx_files import evaluated, initializers_of, model, node, saved, tensor
from tests.support.networks.training import execute, gradients
from tests.support.onboard.kernels import Array, KernelLibrary, compile_library
from tests.support.paths import REFERENCES


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Numbers from 0.2 to 1.2 with either sign, so that no function is near a kink."""
    random = np.random.default_rng((seed, *shape))
    signs = random.choice([-1, 1], shape)
    return (signs * random.uniform(0.2, 1.2, shape)).astype(np.float32)


def whole(*numbers: int) -> NDArray[np.int64]:
    return np.asarray(numbers, np.int64)


# --- what is trained --------------------------------------------------------------------------

IMAGE = (2, 4, 6, 5)


@dataclass(frozen=True)
class Case:
    """Operations from ``x`` to ``y``, in a set of operations."""

    nodes: tuple[NodeProto, ...]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    shape: tuple[int, ...] = IMAGE
    version: int = 17
    positive: bool = False


def one(kind: str, more: str = "", **attributes: Any) -> tuple[NodeProto, ...]:
    return (node(kind, f"x {more}", "y", **attributes),)


def arrays(**shapes: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    return {name: drawn(*shape, seed=number) for number, (name, shape) in enumerate(shapes.items())}


NORM = {**arrays(scale=(4,), shift=(4,), mean=(4,)), "variance": np.abs(drawn(4, seed=9))}


def recurrent(
    kind: str, operands: str = "w r b", results: str = "all", ways: int = 1, **attributes: Any
) -> Case:
    """A layer of 3 hidden numbers; ``results`` are all states, the last one, and the last cell."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * 3
    batch_first = attributes.get("layout", 0) == 1
    states = (2, ways, 3) if batch_first else (ways, 2, 3)
    shapes = {"w": (ways, gates, 5), "r": (ways, gates, 3), "b": (ways, 2 * gates)}
    shapes |= {"h0": states, "c0": states}
    if ways == 2:
        attributes["direction"] = "bidirectional"
    named = [name for name in results.split() if name != "-"]
    nodes = [
        node(kind, f"x {operands}", results, hidden_size=3, **attributes),
        *(node("Reshape", f"{name} rows", f"{name}.rows") for name in named),
        node("Concat", " ".join(f"{name}.rows" for name in named), axis=0),
    ]
    values = {name: drawn(*shapes[name]) for name in operands.split() if name in shapes}
    lengths = {"lengths": whole(4, 4).astype(np.int32)} if "lengths" in operands else {}
    shape = (2, 4, 5) if batch_first else (4, 2, 5)
    return Case(tuple(nodes), {**values, **lengths, "rows": whole(-1, 3)}, shape)


CASES: dict[str, Case] = {
    "an LSTM": recurrent("LSTM"),
    "an LSTM in both directions with states": recurrent(
        "LSTM", "w r b lengths h0 c0", "all last cell", ways=2
    ),
    "an LSTM of which the last states are read": recurrent("LSTM", "w r", "- last cell"),
    "a GRU": recurrent("GRU", linear_before_reset=1),
    "a GRU in both directions, batch first": recurrent(
        *("GRU", "w r b - h0", "all last"), ways=2, layout=1, linear_before_reset=1
    ),
    "a GRU that runs back": recurrent(
        "GRU", "w r", "all last", direction="reverse", linear_before_reset=1
    ),
    "a simple recurrent layer": recurrent("RNN", "w r b - h0", activations=["Tanh"]),
    **{
        kind: Case(one(kind))
        for kind in (
            *(
                "Relu",
                "Sigmoid",
                "Tanh",
                "Exp",
                "Abs",
                "Neg",
                "Reciprocal",
                "Softplus",
                "HardSwish",
            ),
            *("LeakyRelu", "Elu", "HardSigmoid", "Identity", "Clip", "Softmax", "Flatten"),
            *("ReduceMean", "ReduceSum", "GlobalAveragePool", "GlobalMaxPool", "Transpose", "Sum"),
        )
    },
    "Log": Case(one("Log"), positive=True),
    "Sqrt": Case(one("Sqrt"), positive=True),
    "a hard sigmoid of PyTorch": Case(one("HardSigmoid", alpha=1 / 6)),
    "a clip with attributes": Case(one("Clip", min=-0.7, max=0.9), version=6),
    "a clip with inputs": Case(
        one("Clip", "low high"), {"low": np.float32(-0.7), "high": np.float32(0.9)}
    ),
    "a clip from below": Case(one("Clip", "low"), {"low": np.float32(0)}),
    "slopes by channel": Case(one("PRelu", "slope"), arrays(slope=(4, 1, 1))),
    "one slope": Case(one("PRelu", "slope"), arrays(slope=(1,))),
    "a power": Case(one("Pow", "three"), {"three": np.float32(3)}),
    "a sum of rows": Case(one("Add", "row"), arrays(row=(5,))),
    "a difference of planes": Case(one("Sub", "plane"), arrays(plane=(4, 1, 1))),
    "a quotient by a number": Case(one("Div", "two"), {"two": np.float32(2)}),
    "a quotient by a tensor": Case(one("Div", "row"), arrays(row=(5,))),
    "where": Case(
        (node("Where", "mask x zero"),),
        {"mask": drawn(6, 5) > 0, "zero": np.float32(0.5)},
    ),
    "a softmax before set 13": Case(one("Softmax", axis=3), version=12),
    "means along an axis": Case(one("ReduceMean", axes=[1], keepdims=0)),
    "means along axes of an input": Case(
        one("ReduceMean", "axes"), {"axes": whole(-1, 1)}, version=18
    ),
    "a convolution": Case(
        one("Conv", "w b", pads=[1, 0, 1, 0], strides=[2, 1]), arrays(w=(3, 4, 3, 2), b=(3,))
    ),
    "a grouped and dilated convolution": Case(
        one("Conv", "w", group=2, dilations=[2, 1], pads=[2, 1, 2, 1]), arrays(w=(4, 2, 3, 3))
    ),
    "a convolution with more zeros after": Case(
        one("Conv", "w", pads=[0, 0, 1, 2]), arrays(w=(3, 4, 3, 3))
    ),
    "a convolution of the same size": Case(
        one("Conv", "w", auto_pad="SAME_UPPER", strides=[2, 2]), arrays(w=(3, 4, 3, 3))
    ),
    "a convolution of the same size, zeros before": Case(
        one("Conv", "w", auto_pad="SAME_LOWER", strides=[2, 2]), arrays(w=(3, 4, 3, 3))
    ),
    "a convolution along one axis": Case(
        one("Conv", "w b", pads=[1, 1]), arrays(w=(3, 4, 3), b=(3,)), (2, 4, 7)
    ),
    "a transposed convolution": Case(
        one("ConvTranspose", "w b", strides=[2, 2], pads=[1, 0, 1, 0], output_padding=[1, 0]),
        arrays(w=(4, 3, 3, 2), b=(3,)),
    ),
    "max pooling": Case(one("MaxPool", kernel_shape=[2, 2], strides=[2, 2])),
    "max pooling with padding": Case(
        one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    ),
    "max pooling of the same size": Case(
        one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    ),
    "average pooling": Case(one("AveragePool", kernel_shape=[3, 2], strides=[1, 2])),
    "average pooling with zeros": Case(
        one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    ),
    "a frozen batch norm": Case(one("BatchNormalization", "scale shift mean variance"), NORM),
    "an instance norm": Case(
        one("InstanceNormalization", "scale shift"), arrays(scale=(4,), shift=(4,))
    ),
    "a layer norm": Case(
        one("LayerNormalization", "scale shift", epsilon=1e-3), arrays(scale=(5,), shift=(5,))
    ),
    "a linear layer": Case(one("Gemm", "w b", transB=1), arrays(w=(3, 5), b=(3,)), (4, 5)),
    "a linear layer of Keras": Case(one("Gemm", "w b"), arrays(w=(5, 3), b=(3,)), (4, 5)),
    "a scaled product of a transpose": Case(
        one("Gemm", "w b", transA=1, alpha=0.5, beta=2.0), arrays(w=(4, 3), b=(1, 3)), (4, 5)
    ),
    "a product with a matrix": Case(
        (node("MatMul", "x w", "a"), node("Add", "a b", "y")), arrays(w=(5, 3), b=(3,)), (2, 4, 5)
    ),
    "a sum with a product with a matrix": Case(
        (node("MatMul", "x w", "a"), node("Add", "b a", "y")), arrays(w=(5, 3), b=(3,)), (2, 4, 5)
    ),
    "a product with a matrix that is read elsewhere": Case(
        (node("MatMul", "x w", "a"), node("Add", "a w", "y")), arrays(w=(5, 5)), (5, 5)
    ),
    "a matrix and its transpose": Case(
        (node("Gemm", "x w b", "a", transB=1), node("Tanh", "a", "t"), node("Gemm", "t w", "y")),
        arrays(w=(3, 5), b=(3,)),
        (4, 5),
    ),
    "a square matrix and its transpose": Case(
        (node("Gemm", "x w", "a"), node("Tanh", "a", "t"), node("Gemm", "t w", "y", transB=1)),
        arrays(w=(5, 5)),
        (4, 5),
    ),
    "a matrix as it is and scaled": Case(
        (node("Gemm", "x w", "a"), node("Tanh", "a", "t"), node("Gemm", "t w", "y", alpha=0.5)),
        arrays(w=(5, 5)),
        (4, 5),
    ),
    "a product that is read twice": Case(
        (node("MatMul", "x w", "a"), node("Add", "a b", "s"), node("Mul", "s a", "y")),
        arrays(w=(5, 3), b=(3,)),
        (4, 5),
    ),
    "a product of two tensors": Case(
        (node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "x t", "y")), {}, (2, 4, 5)
    ),
    "a shape that is computed": Case(
        (
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Unsqueeze", "n axis", "n1"),
            node("Concat", "n1 rest", "to", axis=0),
            node("Reshape", "x to", "y"),
        ),
        {"zero": np.asarray(0, np.int64), "axis": whole(0), "rest": whole(-1)},
    ),
    "joined parts": Case(
        (
            node("Split", "x sizes", "a b", axis=1),
            node("Slice", "b start end axis step", "c"),
            node("Concat", "c a", "y", axis=1),
        ),
        {
            **{"sizes": whole(1, 3), "start": whole(-3), "end": whole(9)},
            **{"axis": whole(1), "step": whole(2)},
        },
    ),
    "axes of one element": Case(
        (node("Unsqueeze", "x at", "u"), node("Squeeze", "u at", "y")), {"at": whole(1)}
    ),
    "the first entries": Case(one("Gather", "at", axis=2), {"at": np.asarray(1, np.int64)}),
    "every second entry": Case(one("Gather", "at", axis=2), {"at": whole(0, 2, 4)}),
    "entries at uneven places": Case(one("Gather", "at", axis=2), {"at": whole(0, 4, 1, 4)}),
    "zeros around": Case(one("Pad", "sides"), {"sides": whole(0, 0, 1, 0, 0, 1, 0, 2)}),
    "repetitions": Case(one("Tile", "times"), {"times": whole(1, 2, 1, 1)}),
    "an expansion": Case(one("Expand", "to"), {"to": whole(2, 4, 3, 5)}, (2, 4, 1, 5)),
    "repeated pixels": Case(
        one(
            *("Resize", "- scales"),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        {"scales": np.float32([1, 1, 2, 3])},
    ),
    "pixels that are left out": Case(
        one(
            *("Resize", "- scales"),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        {"scales": np.float32([1, 1, 0.5, 1.6])},
    ),
    "pixels that are repeated around their middle": Case(
        one("Resize", "- - to", mode="nearest"), {"to": whole(2, 4, 12, 15)}
    ),
    "bilinear pixels": Case(
        one("Resize", "- scales", mode="linear"), {"scales": np.float32([1, 1, 2, 1.4])}
    ),
    "aligned pixels": Case(
        one("Resize", "- - to", mode="linear", coordinate_transformation_mode="align_corners"),
        {"to": whole(2, 4, 9, 7)},
    ),
    "a GELU of set 20": Case(one("Gelu", approximate="tanh"), version=20),
    "a GELU that is composed": Case(
        (
            node("Div", "x root", "d"),
            node("Erf", "d", "e"),
            node("Add", "e one", "a"),
            node("Mul", "x a", "m"),
            node("Mul", "m half", "y"),
        ),
        {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)},
    ),
    "a GELU of half the operand": Case(
        (
            node("Mul", "x root", "d"),
            node("Erf", "d", "e"),
            node("Add", "one e", "a"),
            node("Mul", "half x", "m"),
            node("Mul", "m a", "y"),
        ),
        {"root": np.float32(np.sqrt(0.5)), "one": np.float32(1), "half": np.float32(0.5)},
    ),
}


def model_of(case: Case) -> ModelProto:
    """The case's operations on an input that is multiplied by a trained tensor."""
    gain = drawn(*case.shape[1:], seed=7)
    values = {"gain": np.abs(gain) if case.positive else gain, **case.arrays}
    nodes = [node("Mul", "image gain", "x"), *case.nodes]
    return model(nodes, [tensor("image", *case.shape)], values, [tensor("y")], case.version)


def trained(step: TrainingStep) -> set[str]:
    return {op.reads[0] for op in step.ops if op.name.endswith(".update")}


def stepped(
    path: Path, library: KernelLibrary, inputs: Mapping[str, Array], **choices: Any
) -> tuple[TrainingStep, float, dict[str, Array]]:
    """A step, its loss, and its gradients."""
    step = build_model(str(path), **choices)
    made = execute(step, library, {**initial_values(step, 0), **inputs})
    (loss,) = (
        made[each.name] for each in step.tensors if each.kind == "activation" and each.persist
    )
    found = dict(gradients(step, made))
    assert step.file is not None
    return step, float(loss[0]), found if step.file.restored is None else step.file.restored(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_the_reference_implementation(
    name: str, library: KernelLibrary, tmp_path: Path
) -> None:
    case = CASES[name]
    content = model_of(case)
    image = np.abs(drawn(*case.shape)) if case.positive else drawn(*case.shape)
    exact = {
        key: array.astype(np.float64)
        for key, array in {"image": image, **initializers_of(content)}.items()
        if array.dtype == np.float32 and key != "scales"
    }
    prediction = evaluated(content, exact)
    target = drawn(*prediction.shape, seed=3)

    def loss_of(values: Mapping[str, NDArray[Any]]) -> float:
        return float(np.mean((evaluated(content, {**exact, **values}) - target) ** 2))

    path = saved(tmp_path / "net.onnx", content)
    inputs = {"image": image, "target": target}
    _, loss, found = stepped(path, library, inputs, loss="mse")
    assert loss == pytest.approx(loss_of({}), rel=1e-5)
    assert found
    for key, gradient in found.items():
        # The slope along the gradient itself, where an error is largest, and along another way.
        for way in (gradient.reshape(exact[key].shape), drawn(*exact[key].shape, seed=5)):
            step = (3e-4 / np.abs(way).max()) * way.astype(np.float64)
            rise = loss_of({key: exact[key] + step}) - loss_of({key: exact[key] - step})
            expected = 2 * float(np.vdot(gradient.reshape(way.shape), step))
            assert rise == pytest.approx(expected, rel=1e-3, abs=1e-7), key


# --- a transformer's block --------------------------------------------------------------------

SEQUENCES = REFERENCES / "exported" / "sequences"


def sequences(path: Path) -> Path:
    """The recorded network ``sequences`` as exporters of ONNX state it; its batch is left open."""
    nodes = [node("Gather", "table.weight tokens", "x0")]
    nodes += [node("LayerNormalization", "x0 norm.weight norm.bias", "n", epsilon=1e-5)]
    for name in ("query", "key", "value"):
        order = [0, 2, 3, 1] if name == "key" else [0, 2, 1, 3]
        nodes += [
            node("Transpose", f"{name}.weight", f"{name}.t"),
            node("MatMul", f"n {name}.t", f"{name}.rows", f"/{name}/MatMul"),
            node("Reshape", f"{name}.rows heads", f"{name}.heads"),
            node("Transpose", f"{name}.heads", f"{name}.turned", perm=order),
        ]
    nodes += [
        node("MatMul", "query.turned key.turned", "products"),
        node("Mul", "products scale", "scores"),
        node("Softmax", "scores", "weights"),
        node("MatMul", "weights value.turned", "mixed"),
        node("Transpose", "mixed", "turned", perm=[0, 2, 1, 3]),
        node("Reshape", "turned joined", "rows"),
        node("Add", "x0 rows", "x1"),
        node("Transpose", "wide.weight", "wide.t"),
        node("MatMul", "x1 wide.t", "wide.product"),
        node("Add", "wide.bias wide.product", "wide"),
        node("Div", "wide root", "divided"),
        node("Erf", "divided", "erf"),
        node("Add", "erf one", "shifted"),
        node("Mul", "wide shifted", "product"),
        node("Mul", "product half", "gelu"),
        node("Transpose", "narrow.weight", "narrow.t"),
        node("MatMul", "gelu narrow.t", "narrow.product"),
        node("Add", "narrow.bias narrow.product", "narrow"),
        node("Add", "x1 narrow", "x2"),
        node("Identity", "table.weight", "head.weight"),
        node("Transpose", "head.weight", "head.t"),
        node("MatMul", "x2 head.t", "logits"),
        node("Softmax", "logits", "probabilities", axis=2),
    ]
    step = build_model(f"{SEQUENCES}.pt2")
    assert step.file is not None
    values = {name: values for name, values in step.file.values.items() if name != "head.weight"}
    values |= {"heads": whole(0, 0, 2, 4), "joined": whole(0, 0, 8), "scale": np.float32(0.5)}
    values |= {"one": np.float32(1), "half": np.float32(0.5), "root": np.float32(np.sqrt(2))}
    inputs = [tensor("tokens", "N", 5, kind=TensorProto.INT64)]
    return saved(path, model(nodes, inputs, values, [tensor("probabilities", "N", 5, 11)]))


def test_gradients_of_a_transformer_are_those_of_pytorch(
    library: KernelLibrary, tmp_path: Path
) -> None:
    with np.load(f"{SEQUENCES}.npz") as kept:
        recorded = dict(kept)
    inputs = {
        "tokens": recorded["input.tokens"].astype(np.int32),
        "labels": recorded["input.following"].astype(np.int32).reshape(2, 5),
    }
    path = sequences(tmp_path / "sequences.onnx")
    step, loss, found = stepped(path, library, inputs, loss="cross-entropy", batch=2)
    assert loss == pytest.approx(float(recorded["loss"]), rel=1e-6)
    expected = {
        key.removeprefix("gradient."): recorded[key] for key in recorded if "gradient." in key
    }
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        wanted = expected[key].reshape(gradient.shape)
        np.testing.assert_allclose(gradient, wanted, rtol=2e-5, atol=1e-6, err_msg=key)
    assert step.file is not None
    assert step.file.remark.endswith("; the loss takes what the file's last softmax reads")


def test_a_composed_gelu_is_one_operation(tmp_path: Path) -> None:
    step = build_model(str(sequences(tmp_path / "net.onnx")), loss="cross-entropy")
    assert [op.name for op in step.ops if op.spec.kind == "gelu.forward"]
    assert step.batch == 1


@pytest.mark.parametrize("file_format", ["pt2", "onnx"])
def test_another_process_gets_a_step_without_the_values_of_its_file(
    tmp_path: Path, file_format: str
) -> None:
    path = sequences(tmp_path / "net.onnx") if file_format == "onnx" else f"{SEQUENCES}.pt2"
    step = build_model(str(path), loss="cross-entropy" if file_format == "onnx" else None)
    sent = pickle.loads(pickle.dumps(step))
    assert sent == step
    assert (sent.ops, sent.tensors) == (step.ops, step.tensors)
    with pytest.raises(Defect, match=rf"{path}: its values were not sent to this process"):
        initial_values(sent, 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["net.pt2", "net.onnx"])
def test_a_network_in_no_regular_file_is_refused_unopened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / "device" / name).parent.mkdir()
    (tmp_path / "device" / name).symlink_to("/dev/zero")
    (tmp_path / "folder" / name).mkdir(parents=True)
    for folder, what in (
        ("", "it is a named pipe"),
        ("device", "it is a device"),
        ("folder", "Is"),
    ):
        with pytest.raises(ExportError, match=rf"{name}: cannot be read: {what}"):
            build_model(str(tmp_path / folder / name))


# --- choices ----------------------------------------------------------------------------------


def classifier(*nodes: NodeProto, batch: int | str = 4, **values: Any) -> ModelProto:
    """A linear layer and a norm of ``image`` [batch, 5], then ``nodes`` from ``x`` to ``y``."""
    layers = [
        node("Gemm", "image fc.weight fc.bias", "linear", "/fc/Gemm", transB=1),
        node("BatchNormalization", "linear scale shift mean variance", "x"),
    ]
    arrays_of = {"fc.weight": drawn(4, 5), "fc.bias": drawn(4), **NORM, **values}
    last = list(nodes) or [node("Identity", "x")]
    return model([*layers, *last], [tensor("image", batch, 5)], arrays_of, [tensor("y", batch, 4)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.onnx"


def refusal(path: Path, content: ModelProto, batch: int | None = None) -> str:
    saved(path, content)
    return sentence_of(ExportError, lambda: build_model(str(path), batch, loss="mse"))


def test_initializers_are_trained_and_statistics_are_not(path: Path) -> None:
    saved(path, classifier(node("Mul", "x two"), two=np.float32(2)))
    step = build_model(str(path), loss="mse")
    assert trained(step) == {"fc.weight", "fc.bias", "scale", "shift"}
    assert step.file is not None
    assert set(step.file.values) == {*trained(step), "mean", "variance"}
    assert step.file.remark == (
        f"{path}: fine-tuning: batch norms keep the file's statistics, and nothing is dropped out"
    )


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -1e4])
def test_a_mask_is_not_trained(hidden: float, path: Path) -> None:
    mask = np.triu(np.full((4, 4), hidden, np.float32), 1)
    layers = (node("Add", "x mask", "a"), node("Softmax", "a"))
    saved(path, classifier(*layers, mask=mask))
    assert "mask" not in trained(build_model(str(path), loss="mse"))


def test_train_and_lora_select_what_is_trained(path: Path) -> None:
    saved(path, classifier())
    assert trained(build_model(str(path), loss="mse", train=["norm"])) == {"scale", "shift"}
    step = build_model(str(path), loss="mse", lora="2")
    assert trained(step) == {adapter.name for adapter in step.adapters} != set()
    assert not has_trained_model(step)


def test_what_is_a_statistic_anywhere_is_not_trained(path: Path) -> None:
    content = classifier(
        node("Identity", "shift", "same"), node("BatchNormalization", "x scale shift same variance")
    )
    saved(path, content)
    step = build_model(str(path), loss="mse")
    assert trained(step) == {"fc.weight", "fc.bias", "scale"}


def test_without_a_loss_the_file_is_refused(path: Path) -> None:
    saved(path, classifier())
    sentence = sentence_of(ExportError, lambda: build_model(str(path)))
    assert sentence.endswith("it must return one scalar; add a loss to predictions with --loss")


def test_a_softmax_along_another_axis_has_no_cross_entropy(path: Path) -> None:
    saved(path, classifier(node("Softmax", "x", axis=0)))
    sentence = sentence_of(ExportError, lambda: build_model(str(path), loss="cross-entropy"))
    assert sentence.endswith("along axis 0 of 2; cross-entropy needs classes along the last")


def test_a_softmax_over_all_features_has_no_cross_entropy(path: Path) -> None:
    """Before set 13, it is over all axes but the first one unless it states another."""
    image, predictions = tensor("image", 4, 2, 5), tensor("y", 4, 2, 5)
    nodes = [node("Mul", "image gain", "x"), node("Softmax", "x", "y")]
    saved(path, model(nodes, [image], {"gain": drawn(5)}, [predictions], 12))
    sentence = sentence_of(ExportError, lambda: build_model(str(path), loss="cross-entropy"))
    assert sentence.endswith("along axis 1 of 3; cross-entropy needs classes along the last")
    saved(path, model(nodes, [image], {"gain": drawn(5)}, [predictions], 13))
    assert build_model(str(path), loss="cross-entropy").batch == 4


def test_batch_sets_the_size_that_is_left_open(path: Path) -> None:
    saved(path, classifier(batch="N"))
    assert build_model(str(path), 7, loss="mse").batch == 7
    saved(path, classifier(batch=4))
    assert build_model(str(path), loss="mse").batch == 4
    with pytest.raises(ModelError, match="with 4 samples in a step, not 7"):
        build_model(str(path), 7, loss="mse")


def test_another_size_that_is_left_open_is_refused(path: Path) -> None:
    content = model([node("Relu", "x")], [tensor("x", "N", "width")], {}, [tensor("y")])
    assert "axis 1 of the input x has no fixed size; only the first axis" in refusal(path, content)


# --- refusals ---------------------------------------------------------------------------------


def test_all_unsupported_nodes_are_named_at_once(path: Path) -> None:
    content = classifier(
        node("Selu", "x", "a", "/first/Selu"),
        node("Relu", "a", "b"),
        node("LpNormalization", "b", "c"),
        node("Softmax", "x", "d", axis=0),
        node("Pow", "d exponent", "e", "/last/Pow"),
        node("Sum", "c e x", "y"),
        exponent=np.float32(65.0),
    )
    with pytest.raises(ExportError) as raised:
        build_model(str(saved(path, content)), loss="mse")
    first, *lines = str(raised.value).splitlines()
    assert first.endswith("3 operations cannot be trained here:")
    assert [line.strip() for line in lines] == [
        "Selu at node /first/Selu: not among the operations that can be trained here",
        "LpNormalization at node c: not among the operations that can be trained here",
        "Pow at node /last/Pow: its exponent is 65.0; use one from -64 to 64, but not 0",
    ]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (one("Selu"), "not among the operations"),
        (one("PRelu", "rows"), "its slopes have shape"),
        (one("Slice", "four one"), "its result is empty"),
        (one("Softmax", axis=9), "its shapes do not fit|its axes are"),
        (one("Reshape", "shape"), r"it makes shape \(3, 5\) of \(4, 4\)"),
        (one("Expand", "shape"), "its shapes do not fit"),
        (one("Pad", "sides", mode="reflect"), "it pads by reflect"),
        ((node("Dropout", "x", "z y"),), "which only training has"),
        (
            (
                node(
                    "BatchNormalization",
                    "x scale shift mean variance",
                    "y mean1 variance1",
                    training_mode=1,
                ),
            ),
            "it is in training mode",
        ),
        (one("Gather", "far"), "Gather at"),
        (
            (node("Reshape", "x plane", "p"), node("Resize", "p - - wider", mode="nearest")),
            r"from \(2, 2\) to \(2, 3\) by half pixels; use a whole factor, or asymmetric",
        ),
        (
            (
                node("Reshape", "x plane", "p"),
                node(
                    *("Resize", "p - scales"),
                    mode="nearest",
                    coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor",
                ),
            ),
            "its scale 1.8 makes 3 of 2 pixels; use the quotient of both sizes",
        ),
    ],
)
def test_nodes_that_cannot_be_trained_are_refused(
    nodes: tuple[NodeProto, ...], why: str, path: Path
) -> None:
    values = {
        **{"four": whole(4), "one": whole(1), "shape": whole(3, 5), "far": whole(0, 9)},
        **{"sides": whole(0, 1, 0, 1), "rows": drawn(4, 1), "plane": whole(4, 1, 2, 2)},
        **{"wider": whole(4, 1, 2, 3), "scales": np.float32([1, 1, 1, 1.8])},
    }
    content = saved(path, classifier(*nodes, **values))
    with pytest.raises(ExportError, match=why):
        build_model(str(content), loss="mse")


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (recurrent("GRU"), r"before the product \(linear_before_reset=0\); use reset_after=True"),
        (recurrent("RNN", activations=["Affine"]), "its activations are affine"),
        (recurrent("LSTM", activations=["Relu", "Tanh", "Tanh"]), "only sigmoid, tanh, tanh"),
        (recurrent("LSTM", clip=1.0), "it states clip"),
    ],
)
def test_recurrent_layers_of_other_forms_are_refused(case: Case, why: str, path: Path) -> None:
    with pytest.raises(ExportError, match=why):
        build_model(str(saved(path, model_of(case))), loss="mse")


def _cycle(content: ModelProto) -> None:
    content.graph.node[0].input[0] = "x"


def _missing(content: ModelProto) -> None:
    del content.graph.initializer[0]


def _not_a_number(content: ModelProto) -> None:
    broken = numpy_helper.from_array(np.full((4, 5), np.nan, np.float32), "fc.weight")
    content.graph.initializer[0].CopyFrom(broken)


def _short(content: ModelProto) -> None:
    content.graph.initializer[0].raw_data = b"1234"


def _huge(content: ModelProto) -> None:
    content.graph.initializer[0].dims[:] = [2**40, 2**40]


def _twice(content: ModelProto) -> None:
    content.graph.initializer.append(content.graph.initializer[0])


def _two_makers(content: ModelProto) -> None:
    content.graph.node[1].output[0] = "linear"


def _no_output(content: ModelProto) -> None:
    content.graph.output[0].name = "z"


def _huge_input(content: ModelProto) -> None:
    content.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**62


def _sequence(content: ModelProto) -> None:
    content.graph.input[0].type.CopyFrom(
        helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2]))
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_cycle, "/fc/Gemm reads 'x', which nothing before it makes"),
        (_missing, "/fc/Gemm reads 'fc.weight', which nothing before it makes"),
        (_not_a_number, "fc.weight has a number that is not finite"),
        (_short, "fc.weight cannot be read"),
        (_huge, r"fc.weight has shape \(1099511627776, 1099511627776\)"),
        (_twice, "two initializers are named 'fc.weight'"),
        (_two_makers, "two nodes or inputs make 'linear'|reads 'x'"),
        (_no_output, "nothing makes the output 'z'"),
        (_huge_input, "cannot be trained here"),
        (_sequence, "the input image is no tensor of a known shape"),
    ],
)
def test_a_broken_graph_is_refused(
    change: Callable[[ModelProto], None], why: str, path: Path
) -> None:
    content = classifier()
    change(content)
    with pytest.raises(ExportError, match=why):
        build_model(str(saved(path, content)), loss="mse")


@pytest.mark.parametrize("length", [0, 1, 40, 300])
def test_a_file_that_is_cut_off_is_refused(length: int, path: Path) -> None:
    path.write_bytes(classifier().SerializeToString()[:length])
    with pytest.raises(ExportError, match=r"not an ONNX file|nothing|not fixed"):
        build_model(str(path), loss="mse")


def test_without_the_package_a_sentence_names_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(path, classifier())
    monkeypatch.setitem(sys.modules, "onnx", None)
    sentence = sentence_of(ExportError, lambda: build_model(str(path), loss="mse"))
    assert sentence.endswith(f"need the package onnx: {installing_extra('onnx')}")


# --- data in other files ----------------------------------------------------------------------


def apart(path: Path, location: str, **keys: int) -> Path:
    """A classifier of which the first weight lies in another file."""
    content = classifier()
    weight = content.graph.initializer[0]
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **keys}.items():
        weight.external_data.add(key=key, value=str(value))
    (path.parent / "weights.bin").write_bytes(b"head" + data)
    return saved(path, content)


def test_data_beside_the_model_is_read_and_belongs_to_its_hash(path: Path) -> None:
    hashes = set()
    for _ in range(2):
        step = build_model(str(apart(path, "weights.bin", offset=4, length=80)), loss="mse")
        assert step.file is not None
        np.testing.assert_array_equal(step.file.values["fc.weight"], drawn(4, 5))
        hashes.add(step.file.sha256)
        assert file_sha256(path) == step.file.sha256
    data = path.parent / "weights.bin"
    data.write_bytes(data.read_bytes()[:-4] + b"\0\0\0\0")
    step = build_model(str(path), loss="mse")
    assert step.file is not None
    assert len(hashes) == 1
    assert step.file.sha256 not in hashes
    assert file_sha256(path) == step.file.sha256


@pytest.mark.parametrize(
    ("location", "keys", "why"),
    [
        ("../weights.bin", {}, "lies at '../weights.bin', not in the folder of the model"),
        ("/etc/hostname", {}, "lies at '/etc/hostname', not in the folder of the model"),
        ("link", {}, "lies at 'link', which is no file of its folder"),
        ("missing.bin", {}, "lies at 'missing.bin', which is no file of its folder"),
        ("weights.bin", {"offset": 4, "length": 81}, "is 81 bytes from 4 on; weights.bin has 84"),
        ("weights.bin", {"offset": -4}, "bytes from -4 on"),
        ("weights.bin", {"length": 8}, "fc.weight cannot be read"),
    ],
)
def test_data_elsewhere_is_refused(
    location: str,
    keys: dict[str, int],
    why: str,
    path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "weights.bin"
    outside.write_bytes(drawn(4, 5).tobytes())
    (path.parent / "link").symlink_to(outside)
    apart(path, location, **keys)
    assert why in sentence_of(ExportError, lambda: build_model(str(path), loss="mse"))


# --- home again -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["an LSTM in both directions with states", "a GRU that runs back", "a product with a matrix"],
)
def test_parameters_go_home_in_the_order_of_the_file(name: str, path: Path) -> None:
    content = model_of(CASES[name])
    file = build_model(str(saved(path, content)), loss="mse").file
    assert file is not None
    assert file.restored is not None
    assert file.save is not None
    restored = file.restored({own: 2 * array for own, array in file.values.items()})
    before = initializers_of(content)
    assert restored.keys() == {key for key, each in before.items() if each.dtype == np.float32}
    for key, array in restored.items():
        np.testing.assert_array_equal(array, 2 * before[key], err_msg=key)
    file.save(restored, path)
    after = initializers_of(ModelProto.FromString(path.read_bytes()))
    assert all(np.array_equal(after[key], restored[key]) for key in restored)


def of_tokens(*nodes: NodeProto, **values: NDArray[Any]) -> ModelProto:
    """Rows of a table at the places that ``nodes`` make of ``tokens`` [2, 3]."""
    tokens = [tensor("tokens", 2, 3, kind=TensorProto.INT64)]
    layers = [*nodes, node("Gather", "table places", "y")]
    return model(layers, tokens, {"table": drawn(5, 4), **values}, [tensor("y", 2, 3, 4)])


@pytest.mark.parametrize(
    "nodes",
    [
        (node("Div", "tokens two", "places"),),
        (node("ReduceMean", "both", "places", axes=[2], keepdims=0),),
    ],
)
def test_quotients_of_whole_numbers_are_refused(nodes: tuple[NodeProto, ...], path: Path) -> None:
    both = (node("Unsqueeze", "tokens last", "one"), node("Concat", "one one", "both", axis=2))
    saved(path, of_tokens(*both, *nodes, two=whole(2), last=whole(2)))
    with pytest.raises(ExportError, match="it divides whole numbers, and its quotient is rounded"):
        build_model(str(path), loss="mse")


def test_computed_places_that_are_negative_count_from_the_end(
    path: Path, library: KernelLibrary
) -> None:
    content = of_tokens(node("Sub", "tokens four", "places"), four=whole(4))
    tokens, target = np.asarray([[0, 3, 4], [2, 4, 1]]), drawn(2, 3, 4)
    rows = evaluated(content, {"tokens": tokens})
    inputs = {"tokens": tokens.astype(np.int32), "target": target}
    _, loss, found = stepped(saved(path, content), library, inputs, loss="mse")
    assert loss == pytest.approx(np.mean((rows - target) ** 2), rel=1e-5)
    expected = np.zeros((5, 4))
    np.add.at(expected, tokens - 4, 2 * (rows - target) / target.size)
    np.testing.assert_allclose(found["table"], expected, rtol=1e-5, atol=1e-7)


def test_places_of_the_input_are_read_as_they_are(path: Path) -> None:
    content = of_tokens(node("Cast", "tokens", "places", to=TensorProto.INT32))
    step = build_model(str(saved(path, content)), loss="mse")
    assert next(op.spec.family for op in step.ops if op.phase == "forward") == "embedding"


def test_a_product_with_a_matrix_is_a_linear_layer(path: Path, library: KernelLibrary) -> None:
    """It can have adapters, and its batch can be split."""
    layers = [node("MatMul", "image w", "a"), node("Add", "a b", "y")]
    values = {"w": drawn(5, 3), "b": drawn(3)}
    content = model(layers, [tensor("image", 4, 2, 5)], values, [tensor("y", 4, 2, 3)])
    saved(path, content)
    step = build_model(str(path), loss="mse", lora="2")
    assert {each.name: each.shape for each in step.adapters} == {
        "w.lora_A.weight": (2, 5),
        "w.lora_B.weight": (3, 2),
    }
    assert trained(build_model(str(path), loss="mse", train=["bias"])) == {"b"}
    inputs = {"image": drawn(4, 2, 5), "target": drawn(4, 2, 3)}
    _, loss, found = stepped(path, library, inputs, loss="mse")
    halves = {
        f"{key}@{part}": array[2 * part - 2 : 2 * part]
        for key, array in inputs.items()
        for part in (1, 2)
    }
    _, split_loss, split = stepped(path, library, halves, loss="mse", accumulate=2)
    assert split_loss == pytest.approx(loss)
    assert found["w"].shape == (5, 3)
    for key, gradient in found.items():
        np.testing.assert_allclose(split[key], gradient, rtol=1e-5, atol=1e-6)


def test_a_copy_of_the_file_has_the_trained_values(path: Path, tmp_path: Path) -> None:
    saved(path, classifier())
    file = build_model(str(path), loss="mse").file
    assert file is not None
    assert file.save is not None
    file.save({"fc.bias": np.ones(4, np.float32)}, tmp_path / "trained.onnx")
    before, after = (
        initializers_of(ModelProto.FromString(each.read_bytes()))
        for each in (path, tmp_path / "trained.onnx")
    )
    np.testing.assert_array_equal(after.pop("fc.bias"), np.ones(4))
    del before["fc.bias"]
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
