"""Graphs of odd shapes and any size, for limits that must hold whatever a graph looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from solver.problem.graph import CostedGraph, Tensor
from tests.support.graphs.graph_examples import graph, op, tensor

_PAGE = (0.5, 2.0)


def chain_with_long_skips(ops: int) -> CostedGraph:
    """Each op of the second half also reads what its mirror image in the first half wrote."""
    reads = [
        "x" if k == 0 else f"t{k - 1}" + (f" t{ops - 1 - k}" if 2 * k > ops else "")
        for k in range(ops)
    ]
    return graph(
        [op(f"op{k}", reads[k], f"t{k}", energy_j=1.0 + k % 5) for k in range(ops)],
        [tensor("x", 64), *_written(ops)],
        f"{ops} ops with long skips",
    )


def wide(ops: int) -> CostedGraph:
    """All ops but the last read the same tensor; the last reads what all others wrote."""
    branches = [op(f"op{k}", "x", f"t{k}", energy_j=1.0 + k % 5) for k in range(ops - 1)]
    join = op("join", " ".join(f"t{k}" for k in range(ops - 1)), f"t{ops - 1}")
    return graph([*branches, join], [tensor("x", 64), *_written(ops)], f"{ops} ops side by side")


def in_place(ops: int) -> CostedGraph:
    """Every op overwrites one of the two tensors that it reads."""
    lanes = 10
    tensors = [tensor(f"lane{n}", 64 + 16 * (n % 7), page_out=_PAGE) for n in range(lanes)]
    last = [each.name for each in tensors]
    listed = []
    for k in range(ops):
        lane = k % lanes
        before, other = last[lane], last[(lane + 3) % lanes]
        last[lane] = f"t{k}"
        replaced = {last[lane]: before}
        listed.append(op(f"op{k}", f"{before} {other}", last[lane], in_place=replaced))
        tensors.append(tensor(last[lane], tensors[lane].bytes, page_out=_PAGE, page_in=_PAGE))
    return graph(listed, tensors, f"{ops} ops in place")


def one_huge_op(ops: int) -> CostedGraph:
    """A chain with long skips whose middle op takes more RAM than all others together."""
    chain = chain_with_long_skips(ops)
    middle = chain.ops[ops // 2].model_copy(update={"workspace_bytes": 1000 * ops})
    listed = (*chain.ops[: ops // 2], middle, *chain.ops[ops // 2 + 1 :])
    return graph(listed, chain.tensors, f"{ops} ops, one of them huge")


def many_read_by_one(ops: int) -> CostedGraph:
    """A chain of which the last op also reads thousands of tensors that exist from the start."""
    parameters = [
        tensor(f"w{k}", 64, kind="parameter", persist="ram", page_out=_PAGE, page_in=_PAGE)
        for k in range(ops)
    ]
    chain = [op(f"op{k}", f"t{k - 1}" if k else "w0", f"t{k}") for k in range(ops - 1)]
    read = " ".join(f"w{k}" for k in range(ops))
    last = op("last", f"t{ops - 2} {read}", f"t{ops - 1}")
    return graph([*chain, last], [*parameters, *_written(ops)], f"{ops} tensors read by one op")


def _written(ops: int) -> list[Tensor]:
    return [tensor(f"t{k}", 64 + 16 * (k % 7), page_out=_PAGE, page_in=_PAGE) for k in range(ops)]


ODD_GRAPHS: Mapping[str, Callable[[int], CostedGraph]] = MappingProxyType(
    {
        "long skips": chain_with_long_skips,
        "wide": wide,
        "in place": in_place,
        "one huge op": one_huge_op,
        "many read by one": many_read_by_one,
    }
)
"""Each makes a graph of the given number of ops."""
