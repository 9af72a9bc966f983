"""The model list: parameter counts that are known, and names that are not."""

from __future__ import annotations

import pytest

from solver.models import ModelError, build_model, model_names

# Trained parameters. For MLPerf Tiny, Keras' total counts the running statistics too.
PARAMETERS = {
    "resnet18_cifar": 11_173_962,
    "resnet8": 78_666 - 480,
}


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_a_model_has_the_known_number_of_parameters(name: str, parameters: int) -> None:
    assert build_model(name).parameter_count == parameters


def test_every_model_on_the_list_has_a_known_number_of_parameters() -> None:
    assert set(model_names()) == set(PARAMETERS)


def test_a_misspelt_name_suggests_the_near_one() -> None:
    with pytest.raises(
        ModelError, match="no model is named 'resnet18_cifr'; did you mean resnet18_cifar"
    ):
        build_model("resnet18_cifr")


def test_a_name_like_no_model_gets_the_list() -> None:
    with pytest.raises(ModelError, match="there are .*resnet8"):
        build_model("xyzzy")


def test_batch_sizes_and_optimizers_are_checked() -> None:
    with pytest.raises(ModelError, match="the batch size is 0, it must be at least 1"):
        build_model("resnet8", batch=0)
    with pytest.raises(ModelError, match="no optimizer is named 'adam'; there are sgd, momentum"):
        build_model("resnet8", optimizer="adam")  # type: ignore[arg-type]
