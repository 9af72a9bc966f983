"""Operations of a program that consist of several others.

They are replaced before anything else is done, so that views, broadcasting and gradients are those
of the operations that they consist of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from networks.exported.constants import is_foldable
from networks.exported.decompositions.elements import ELEMENTS
from networks.exported.decompositions.extremes import EXTREMES
from networks.exported.decompositions.functions import FUNCTIONS
from networks.exported.decompositions.losses import LOSSES, is_before_likelihood
from networks.exported.decompositions.parts import Decomposition, Incomplete, Parts
from networks.exported.decompositions.places import PLACES
from networks.exported.program import FLOAT32, Node, Program

__all__ = ["decomposed"]

_DECOMPOSITIONS: Mapping[str, Decomposition] = {
    **FUNCTIONS,
    **ELEMENTS,
    **EXTREMES,
    **PLACES,
    **LOSSES,
}
_DETACH = "aten.detach.default"
_BROADCAST = "aten.broadcast_tensors.default"
_LOG_SOFTMAX = "aten.log_softmax.int"
_DRAWN = ("aten.rand", "aten.bernoulli", "aten.empty", "aten.new_empty")


def decomposed(program: Program) -> Program:
    """Replace the operations that consist of others."""
    learned, varying = _learned(program), _varying(program)
    nodes: list[Node] = []
    tensors, numbers = dict(program.tensors), dict(program.numbers)
    for node in program.nodes:
        operation = node.target.removeprefix("aten.")
        found = _DECOMPOSITIONS.get(operation)
        parts = Parts(node, program, learned, varying)
        is_kept = node.target == _LOG_SOFTMAX and is_before_likelihood(node, program)
        is_constant = is_foldable(operation) and varying.isdisjoint(node.reads)
        if found is not None and node.outputs and not (is_kept or is_constant):
            try:
                found(parts)
            except (Incomplete, LookupError, ArithmeticError, ValueError):  # a damaged file
                parts = Parts(node, program, learned, varying)
        nodes += parts.nodes or [node]
        tensors.update(parts.tensors)
        numbers.update(parts.numbers)
    return replace(program, nodes=tuple(nodes), tensors=tensors, numbers=numbers)


def _varying(program: Program) -> set[str]:
    """Tensors that depend on inputs, on what is trained, or on draws."""
    found = {*program.parameters, *program.inputs}
    for node in program.nodes:
        if not found.isdisjoint(node.reads) or node.target.startswith(_DRAWN):
            found.update(node.outputs)
    return found


def _learned(program: Program) -> set[str]:
    """Tensors through which a gradient may flow: real numbers that depend on parameters."""
    found = set(program.parameters)
    for node in program.nodes:
        if node.target == _DETACH or node.without_gradient:
            continue
        if node.target == _BROADCAST and len(node.reads) == len(node.outputs):
            pairs = zip(node.reads, node.outputs, strict=True)
            found.update(output for read, output in pairs if read in found)
        elif not found.isdisjoint(node.reads):
            tensors = program.tensors
            found.update(name for name in node.outputs if tensors[name].dtype == FLOAT32)
    return found
