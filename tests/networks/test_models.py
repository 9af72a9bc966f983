"""The list of models: known parameter counts, and unknown names."""

from __future__ import annotations

import pytest

from devices.operation import OpSpec
from networks.models import ModelError, build_model, model_names, profiled_network

# Trained parameters and running statistics. Sources: torchvision's tables (VGG, ResNet); the
# checkpoint of BERT-base (109,482,240 with pooler) plus a classifier of 2 × 768 + 2; Keras' totals
# of the MLPerf Tiny reference models, which count both; the layer sizes in the papers for others.
COUNTS = {
    "linear": (43_590, 0),
    "vgg16": (138_357_544, 0),
    "vgg16_cifar": (33_638_218, 0),
    "resnet18": (11_689_512, 9_600),
    "resnet18_cifar": (11_173_962, 9_600),
    "resnet50": (25_557_032, 53_120),
    "transformer": (7_087_872, 0),
    "bert": (109_482_240 + 1_538, 0),
    "resnet8": (78_666 - 480, 480),
    "dscnn": (24_908 - 1_152, 1_152),
    "mobilenet": (221_794 - 5_472, 5_472),
    "autoencoder": (269_992 - 2_064, 2_064),
    "digits": (96 + (80 + 16 + 144 + 32) + (160 + 32 + 544 + 64) + 330, 2 * (8 + 8 + 16 + 16 + 32)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_model_has_the_known_number_of_parameters(name: str) -> None:
    step = build_model(name)
    assert (step.parameter_count, step.statistics_count) == COUNTS[name]


def test_every_model_on_the_list_has_a_known_number_of_parameters() -> None:
    assert set(model_names()) == set(COUNTS)


# Millions of multiply-adds per image or frame: torchvision's table (15.47, 1.81 and 4.09 GFLOPS)
# and common figures for MLPerf Tiny. Errors in both channels and sizes would show here.
MILLION_MULTIPLY_ADDS = {
    "vgg16": 15_470,
    "resnet18": 1_814,
    "resnet50": 4_089,
    "resnet18_cifar": 555.4,
    "resnet8": 12.50,
    "dscnn": 2.657,
    "mobilenet": 7.490,
    "autoencoder": 0.2642,
    "digits": 0.018624,
}


@pytest.mark.parametrize("name", MILLION_MULTIPLY_ADDS)
def test_a_model_has_the_known_amount_of_work(name: str) -> None:
    multiply_adds = 0
    for op in build_model(name).ops:
        if op.spec.kind in {"conv2d.forward", "linear.forward"}:
            without_bias = OpSpec.of(op.spec.kind, **{**op.spec.attributes, "bias": 0})
            multiply_adds += without_bias.work_flop // 2
    assert multiply_adds / 1e6 == pytest.approx(MILLION_MULTIPLY_ADDS[name], rel=5e-4)


def test_work_and_activations_grow_with_the_batch() -> None:
    one, eight = build_model("resnet8"), build_model("resnet8", batch=8)
    assert eight.parameter_count == one.parameter_count
    assert 7.9 < eight.activation_bytes / one.activation_bytes <= 8
    assert [op.name for op in eight.ops] == [op.name for op in one.ops]


def test_keyword_spotting_pads_the_odd_row_at_the_end_as_its_reference_does() -> None:
    stem = build_model("dscnn").ops[0].spec.attributes
    assert [stem[f"pad_{side}"] for side in ("top", "bottom", "left", "right")] == [4, 5, 1, 1]


def test_a_misspelt_name_suggests_the_near_one() -> None:
    with pytest.raises(
        ModelError, match="no model is named 'resnet18_cifr'; did you mean resnet18_cifar"
    ):
        build_model("resnet18_cifr")


def test_unknown_model_name_is_refused_with_the_list() -> None:
    with pytest.raises(ModelError, match=r"allowed: .*resnet8"):
        build_model("xyzzy")


def test_batch_sizes_and_optimizers_are_checked() -> None:
    with pytest.raises(ModelError, match="the batch size is 0; it must be at least 1"):
        build_model("resnet8", batch=0)
    with pytest.raises(ModelError, match="no optimizer is named 'adagrad'; allowed: sgd, momentum"):
        build_model("resnet8", optimizer="adagrad")


def test_a_network_that_no_profile_can_state_is_refused_with_a_sentence() -> None:
    said = r"the network: model: found 'net\\x1b\.pt2'; allowed: text without control characters"
    with pytest.raises(ModelError, match=said):
        profiled_network("net\x1b.pt2", build_model("linear"))
