"""Networks whose training steps are compared: PyTorch modules that return their loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarks.networks.modules import Classifier

_BATCH = 8
_PIXELS = 64
_TOKENS, _VOCABULARY = 256, 1024
_SEED = 1


@dataclass(frozen=True)
class Subject:
    """A network of a library, and how its batch is drawn."""

    name: str
    library: str
    build: Callable[[], nn.Module]
    draw: Callable[[], Mapping[str, Tensor]]
    batch: str

    @property
    def is_installed(self) -> bool:
        return find_spec(self.library) is not None

    def module(self) -> nn.Module:
        """The module in training mode, with the same initial values in every call."""
        torch.manual_seed(_SEED)
        return Classifier(self.build()).train()

    def inputs(self) -> Mapping[str, Tensor]:
        torch.manual_seed(_SEED)
        return self.draw()


def subjects() -> tuple[Subject, ...]:
    def images() -> Mapping[str, Tensor]:
        shape = (_BATCH, 3, _PIXELS, _PIXELS)
        return {"x": torch.randn(shape), "labels": torch.randint(0, 10, (_BATCH,))}

    def tokens() -> Mapping[str, Tensor]:
        drawn = torch.randint(0, _VOCABULARY, (2, 1, _TOKENS))
        return {"x": drawn[0], "labels": drawn[1]}

    def torchvision(name: str, **options: object) -> Callable[[], nn.Module]:
        def build() -> nn.Module:
            from torchvision.models import get_model

            module: nn.Module = get_model(name, num_classes=10, **options)
            return module

        return build

    size = f"{_BATCH} images of {_PIXELS} × {_PIXELS} pixels"
    return (
        Subject("resnet18", "torchvision", torchvision("resnet18"), images, size),
        Subject(
            "mobilenet_v2", "torchvision", torchvision("mobilenet_v2", dropout=0.0), images, size
        ),
        Subject("llama block", "transformers", _llama_block, tokens, f"{_TOKENS} tokens"),
    )


def _llama_block() -> nn.Module:
    """One layer of a Llama of 100 million parameters, with a small vocabulary."""
    from transformers import LlamaConfig, LlamaForCausalLM

    module: nn.Module = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=1,
            num_attention_heads=12,
            num_key_value_heads=4,
            vocab_size=_VOCABULARY,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )
    return module
