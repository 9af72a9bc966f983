"""Random layered graphs: irregular problems without paging.

They resemble the random layered graphs of Moccasin (Bartan et al., ICML 2023), which follow
Gagrani et al., Neural Topological Ordering for Computation Graphs (NeurIPS 2022): a source, layers
of random width and a sink. Most edges go from one layer to the next, some skip many layers.
Durations and sizes are whole numbers. Widths and numbers of edges are fitted to the published
graphs of 100 and 500 ops; no data of these graphs is used.
"""

from __future__ import annotations

import math
import random
from itertools import pairwise

from solver.problem.graph import CostedGraph, Op, Tensor

# Probability that an op reads a given op of the layer before, in addition to the one that it must.
_EDGE_PROBABILITY = 0.2
# Probability that an op also reads an op of an earlier layer.
_SKIP_PROBABILITY = 0.5
_LONGEST_DURATION = 999
# Scale of the half-normal distribution of sizes, in units of ten bytes.
_SIZE_SCALE = 250


def layered(ops: int, seed: int) -> CostedGraph:
    """Graph of ``ops`` ops, source and sink included, each with one output. Seconds and joules are
    the same whole number. The order is depth first, as in a program that keeps few tensors. Raises
    :class:`ValueError` for fewer than 4 ops."""
    if ops < 4:
        raise ValueError(f"a layered graph has at least 4 ops, not {ops}")
    chance = random.Random(f"layered {ops} {seed}")
    reads = _edges(_layers(ops, chance), chance)
    order = _depth_first(reads, chance)
    inner = range(1, ops - 1)
    duration = [0.0, *(float(chance.randint(1, _LONGEST_DURATION)) for _ in inner), 0.0]
    size = [10 * math.ceil(abs(chance.gauss(0, _SIZE_SCALE)) + 1) for _ in range(ops)]
    return CostedGraph(
        name=f"layered/{ops}-{seed}",
        ops=tuple(
            Op(
                name=f"op{i}",
                kind="layered",
                phase="forward",
                reads=tuple(f"t{source}" for source in sorted(reads[i])),
                writes=(f"t{i}",),
                time_s=duration[i],
                energy_j=duration[i],
            )
            for i in order
        ),
        tensors=tuple(Tensor(name=f"t{i}", bytes=size[i], kind="activation") for i in order),
    )


def _layers(ops: int, chance: random.Random) -> list[range]:
    """Numbers of the ops of each layer. The first layer is the source, the last one the sink."""
    narrowest, widest = max(1, round(math.sqrt(ops) / 4)), max(2, round(math.sqrt(ops) * 5 / 4))
    layers = [range(1)]
    while layers[-1].stop < ops - 1:
        start = layers[-1].stop
        layers.append(range(start, min(start + chance.randint(narrowest, widest), ops - 1)))
    return [*layers, range(ops - 1, ops)]


def _edges(layers: list[range], chance: random.Random) -> list[set[int]]:
    """Reads of each op. Every op but the source reads an op of the layer before, and every op but
    the sink is read."""
    reads: list[set[int]] = [set() for _ in range(layers[-1].stop)]
    for before, layer in pairwise(layers):
        for i in layer:
            reads[i].add(chance.choice(before))
            reads[i].update(j for j in before if chance.random() < _EDGE_PROBABILITY)
        read = {j for i in layer for j in reads[i]}
        for j in before:
            if j not in read:
                reads[chance.choice(layer)].add(j)
    for layer in layers[3:-1]:
        for i in layer:
            if chance.random() < _SKIP_PROBABILITY:
                reads[i].add(chance.randrange(1, layer.start))
    return reads


def _depth_first(reads: list[set[int]], chance: random.Random) -> list[int]:
    """Order in which an op follows as soon as all its reads exist."""
    readers: list[list[int]] = [[] for _ in reads]
    for i, sources in enumerate(reads):
        for source in sources:
            readers[source].append(i)
    missing = [len(sources) for sources in reads]
    possible, order = [0], []
    while possible:
        order.append(possible.pop())
        enabled = []
        for i in readers[order[-1]]:
            missing[i] -= 1
            if missing[i] == 0:
                enabled.append(i)
        chance.shuffle(enabled)
        possible += enabled
    return order
