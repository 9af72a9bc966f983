"""Transformers: one encoder block, and BERT-base.

The block normalises after adding the shortcut, as in Vaswani et al. 2017 (Attention Is All You
Need) and Devlin et al. 2019 (BERT). Dropout is where BERT has it: on the attention weights and on
the result of either half. All sequences have full length, so there is no attention mask.
"""

from __future__ import annotations

from collections.abc import Callable

from networks.training import Network, Value

_SEQUENCE = 512
_HIDDEN = 768
_HEADS = 12
_FEED_FORWARD = 3072
_DROPOUT = 0.1

# BERT-base, uncased.
_VOCABULARY = 30_522
_SEGMENTS = 2
_BLOCKS = 12
_CLASSES = 2


def transformer(batch: int) -> Network:
    """One encoder block with ReLU (Vaswani et al.), trained to map hidden states to targets.

    This is the training of block-by-block distillation.
    """
    net = Network("transformer", batch)
    x = net.input("hidden", batch, _SEQUENCE, _HIDDEN)
    x = _encoder_block(net, "block", x, net.relu)
    net.mean_squared_error("loss", x, net.input("target", *x.shape))
    return net


def encoder(batch: int, blocks: int) -> Network:
    """A chain of ``blocks`` encoder blocks: a family of graphs of growing size."""
    net = Network(f"encoder{blocks}", batch)
    x = net.input("hidden", batch, _SEQUENCE, _HIDDEN)
    for number in range(1, blocks + 1):
        x = _encoder_block(net, f"block{number}", x, net.relu)
    net.mean_squared_error("loss", x, net.input("target", *x.shape))
    return net


def bert(batch: int) -> Network:
    """BERT-base, fine-tuned to classify sequences: pooler and classifier on the first token."""
    net = Network("bert", batch)
    x = _embeddings(net)
    for number in range(1, _BLOCKS + 1):
        x = _encoder_block(net, f"block{number}", x, net.gelu)
    # Row 0, 512, 1024, ... of all the hidden states.
    x = net.gather("pooler.first", net.input("first_rows", batch), x)
    x = net.tanh("pooler.tanh", net.linear("pooler", x, _HIDDEN))
    x = net.linear("classifier", net.dropout("pooler.dropout", x, _DROPOUT), _CLASSES)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


def _embeddings(net: Network) -> Value:
    def embedded(what: str, vocabulary: int) -> Value:
        indices = net.input(f"{what}s", net.batch, _SEQUENCE)
        return net.embedding(f"embeddings.{what}", indices, vocabulary, _HIDDEN)

    x = net.add("embeddings.add1", embedded("token", _VOCABULARY), embedded("segment", _SEGMENTS))
    x = net.add("embeddings.add2", x, embedded("position", _SEQUENCE))
    return net.dropout("embeddings.dropout", net.layer_norm("embeddings.norm", x), _DROPOUT)


def _encoder_block(
    net: Network, name: str, x: Value, activation: Callable[[str, Value], Value]
) -> Value:
    query, key, value = (
        net.linear(f"{name}.{what}", x, _HIDDEN) for what in ("query", "key", "value")
    )
    y = net.attention(f"{name}.attention", query, key, value, heads=_HEADS, dropout=_DROPOUT)
    y = net.dropout(f"{name}.dropout1", net.linear(f"{name}.projection", y, _HIDDEN), _DROPOUT)
    x = net.layer_norm(f"{name}.norm1", net.add(f"{name}.add1", y, x))
    y = activation(f"{name}.activation", net.linear(f"{name}.wide", x, _FEED_FORWARD))
    y = net.dropout(f"{name}.dropout2", net.linear(f"{name}.narrow", y, _HIDDEN), _DROPOUT)
    return net.layer_norm(f"{name}.norm2", net.add(f"{name}.add2", y, x))
