"""Networks of the benchmark: how each is built, with inputs drawn from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarks.networks import modules, tiny
from benchmarks.networks.modules import Classifier, Reproduction

BATCH = 2

# Batch norm of two numbers gives ±1, whatever they are, so that gradients before it are rounding
# errors.
_BATCH_OF_ROWS = 8
_SEED = 0
_TOKENS = 16


@dataclass(frozen=True)
class Case:
    """A network that PyTorch can build.

    ``library`` is the package that has it, besides PyTorch. ``built_in`` names the network of this
    project that should have the same operations; ``with_dropout`` builds it as it is published, if
    the network that is trained here leaves dropout out. ``lora`` is the rank of adapters.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Mapping[str, Tensor]]
    library: str = "torch"
    built_in: str | None = None
    with_dropout: Callable[[], nn.Module] | None = None
    lora: int | None = None

    @property
    def is_installed(self) -> bool:
        return find_spec(self.library) is not None

    @property
    def batch(self) -> int:
        return len(next(iter(self.draw_inputs().values())))

    def module(self) -> nn.Module:
        """The module in training mode, with the same initial values in every call."""
        torch.manual_seed(_SEED)
        return self.build().train()

    def draw_inputs(self) -> Mapping[str, Tensor]:
        torch.manual_seed(_SEED + 1)
        return self.inputs()


def cases() -> Mapping[str, Case]:
    """All networks by name, small ones first."""
    found = (*_written_here(), *_transformers(), *_torchvision(), *_timm())
    return {case.name: case for case in found}


def _written_here() -> tuple[Case, ...]:
    def classifier(network: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        return lambda: Classifier(network())

    return (
        Case(
            "tiny autoencoder",
            lambda: Reproduction(tiny.autoencoder()),
            lambda: {"x": torch.randn(_BATCH_OF_ROWS, 640)},
            built_in="autoencoder",
        ),
        Case(
            "tiny dscnn",
            classifier(partial(tiny.dscnn, dropout=0.0)),
            partial(_samples, (1, 49, 10), 12),
            built_in="dscnn",
            with_dropout=classifier(tiny.dscnn),
        ),
        Case(
            "tiny resnet8",
            classifier(tiny.resnet8),
            partial(_samples, (3, 32, 32), 10),
            built_in="resnet8",
        ),
        Case(
            "tiny mobilenet",
            classifier(tiny.mobilenet),
            partial(_samples, (3, 96, 96), 2),
            built_in="mobilenet",
        ),
        Case("lstm", classifier(modules.LstmClassifier), partial(_words, 64, 4)),
        Case("gru", classifier(modules.KeywordSpotter), partial(_samples, (50, 40), 10)),
        Case("unet", classifier(modules.UNet), _segmentation),
        Case("tcn", classifier(modules.TemporalConvolutions), partial(_samples, (6, 64), 5)),
        Case(
            "autoencoder",
            lambda: Reproduction(modules.convolutional_autoencoder()),
            lambda: {"x": torch.randn(BATCH, 3, 32, 32)},
        ),
    )


def _transformers() -> tuple[Case, ...]:
    def build() -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=128,
            max_position_embeddings=64,
            use_cache=False,
            attn_implementation="sdpa",
        )
        return Classifier(LlamaForCausalLM(config))

    def inputs() -> Mapping[str, Tensor]:
        shape = (BATCH, _TOKENS)
        return {"x": torch.randint(0, 128, shape), "labels": torch.randint(0, 128, shape)}

    return (Case("llama, LoRA", build, inputs, "transformers", lora=4),)


def _torchvision() -> tuple[Case, ...]:
    options: Mapping[str, Mapping[str, object]] = {
        "resnet18": {},
        "mobilenet_v3_small": {"dropout": 0.0},
        "mobilenet_v2": {"dropout": 0.0},
        "googlenet": {"aux_logits": False, "init_weights": False, "dropout": 0.0},
        "densenet121": {},
    }

    def build(name: str) -> nn.Module:
        from torchvision.models import get_model

        return Classifier(get_model(name, num_classes=10, **options[name]))

    return tuple(
        Case(name, partial(build, name), partial(_samples, (3, 64, 64), 10), "torchvision")
        for name in options
    )


def _timm() -> tuple[Case, ...]:
    options: Mapping[str, Mapping[str, object]] = {
        "deit_tiny_patch16_224": {"img_size": 64},
        "convnext_atto": {},
        "mobilevit_xxs": {},
        "efficientnet_lite0": {"drop_rate": 0.0},
    }

    def build(name: str) -> nn.Module:
        from timm import create_model

        return Classifier(create_model(name, num_classes=10, **options[name]))

    return tuple(
        Case(name, partial(build, name), partial(_samples, (3, 64, 64), 10), "timm")
        for name in options
    )


def _samples(shape: tuple[int, ...], classes: int) -> Mapping[str, Tensor]:
    return {"x": torch.randn(BATCH, *shape), "labels": torch.randint(0, classes, (BATCH,))}


def _words(vocabulary: int, classes: int) -> Mapping[str, Tensor]:
    tokens = torch.randint(0, vocabulary, (BATCH, _TOKENS))
    return {"x": tokens, "labels": torch.randint(0, classes, (BATCH,))}


def _segmentation() -> Mapping[str, Tensor]:
    return {"x": torch.randn(BATCH, 3, 32, 32), "labels": torch.randint(0, 3, (BATCH, 32, 32))}
