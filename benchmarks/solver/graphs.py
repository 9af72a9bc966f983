"""Graphs of the benchmarks by name.

    python -m benchmarks.solver.graphs poet-bert-m4 --out bert.json

| name | what it is |
|---|---|
| ``poet-MODEL-BOARD`` | POET's training steps: linear, vgg16_cifar, resnet18_cifar, resnet50, … |
| ``encoder-BLOCKS-BOARD`` | this project's training step of a transformer encoder |
| ``resnet-DEPTH-BOARD`` | this project's training step of He et al.'s network, 6n + 2 layers |
| ``layered-OPS-SEED`` | random layered graph, no paging |

BOARD is a profile with published rates: m0, m4, a72, a72nocache, jetsontx2.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.solver import poet_graphs
from benchmarks.solver.layered_graphs import layered
from devices.documents.document import require_writable, write_atomically
from devices.published import load_published, published_names
from networks.models.transformer import encoder
from networks.training import Network, training_step
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph
from solver.referee.referee import replay

POET_MODELS: Mapping[str, Callable[[str], CostedGraph]] = {
    "linear": poet_graphs.poet_linear,
    "vgg16_cifar": poet_graphs.poet_vgg16_cifar,
    "resnet18_cifar": poet_graphs.poet_resnet18_cifar,
    "resnet50": poet_graphs.poet_resnet50,
    "transformer": poet_graphs.poet_transformer,
    "bert": poet_graphs.poet_bert,
}

# Graphs of growing size, for solve time against size. The largest encoder has about 2,500 ops.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "encoder": tuple(f"encoder-{blocks}-m4" for blocks in (1, 2, 4, 8, 16, 32, 41)),
    "resnet": tuple(f"resnet-{depth}-m4" for depth in (8, 20, 32, 56, 110)),
    "layered": tuple(f"layered-{ops}-1" for ops in (100, 250, 500, 1000)),
}


def own_transformer(blocks: int, board: str) -> CostedGraph:
    """Training step (SGD, batch 1) of a transformer encoder on a published board."""
    return _own(encoder(1, blocks), board)


def own_resnet(depth: int, board: str) -> CostedGraph:
    """Training step (SGD, batch 1) of a residual network for images of 32 × 32 (He et al. 2016,
    section 4.2) with ``depth`` = 6n + 2 layers. Raises :class:`ValueError` for other depths."""
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"{depth} layers: the depth must be 6n + 2, for example 20")
    net = Network(f"resnet{depth}", 1)
    x = net.conv2d("stem.conv", net.input("image", 1, 3, 32, 32), 16, 3, padding=1)
    x = net.relu("stem.relu", net.batch_norm("stem.norm", x))
    for stage, channels in enumerate((16, 32, 64), start=1):
        for block in range(1, blocks + 1):
            name, stride = f"stage{stage}.block{block}", 2 if stage > 1 and block == 1 else 1
            y = net.conv2d(f"{name}.conv1", x, channels, 3, stride=stride, padding=1)
            y = net.relu(f"{name}.relu1", net.batch_norm(f"{name}.norm1", y))
            y = net.conv2d(f"{name}.conv2", y, channels, 3, padding=1)
            y = net.batch_norm(f"{name}.norm2", y)
            if stride > 1:  # a projection (option B), because no kernel pads channels
                x = net.conv2d(f"{name}.shortcut", x, channels, 1, stride=stride)
                x = net.batch_norm(f"{name}.shortcut_norm", x)
            x = net.relu(f"{name}.relu2", net.add(f"{name}.add", y, x))
    x = net.linear("classifier", net.global_average_pool("pool", x), 10)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    return _own(net, board)


def _own(network: Network, board: str) -> CostedGraph:
    return cost_graph(training_step(network), load_published(board)).graph


def graph_of_name(name: str) -> CostedGraph:
    """Graph of that name. Raises :class:`ValueError` with the list of names for an unknown one."""
    boards = "|".join(published_names())
    if found := re.fullmatch(rf"poet-({'|'.join(POET_MODELS)})-({boards})", name):
        return POET_MODELS[found[1]](found[2])
    if found := re.fullmatch(rf"encoder-([1-9]\d*)-({boards})", name):
        return own_transformer(int(found[1]), found[2])
    if found := re.fullmatch(rf"resnet-([1-9]\d*)-({boards})", name):
        return own_resnet(int(found[1]), found[2])
    if found := re.fullmatch(r"layered-([1-9]\d*)-(\d+)", name):
        return layered(int(found[1]), int(found[2]))
    raise ValueError(
        f"no graph is named {name!r}; names are poet-MODEL-BOARD (MODEL: {', '.join(POET_MODELS)};"
        f" BOARD: {', '.join(published_names())}), encoder-BLOCKS-BOARD, resnet-DEPTH-BOARD and"
        " layered-OPS-SEED"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="name from the table above")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write")
    arguments = parser.parse_args()
    require_writable(arguments.out)
    try:
        graph = graph_of_name(arguments.name)
    except ValueError as error:
        parser.error(str(error))
    document = graph.model_dump_json(by_alias=True, exclude_none=True, indent=1)
    write_atomically(arguments.out, document + "\n")
    peak = replay(graph, keep_everything(graph)).peak_bytes
    least, what = least_ram_bytes(graph)
    print(
        f"{arguments.out}: {len(graph.ops)} ops, {len(graph.tensors)} tensors; unconstrained peak"
        f" {peak} bytes; every schedule needs {least} bytes ({what})"
    )


if __name__ == "__main__":
    main()
