"""Part of PyTorch's schema of exported programs that a training step needs.

The schema stands in ``torch/_export/serde/schema.py``; keys that are not named here are ignored.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Version(Part):
    major: int


class Versioned(Part):
    schema_version: Version
    torch_version: str | None = None


class Named(Part):
    name: str


class TensorArgument(Part):
    as_tensor: Named | None = None


class ParameterSpec(Part):
    arg: Named
    parameter_name: str


class BufferSpec(Part):
    arg: Named
    buffer_name: str
    persistent: bool = True


class ConstantSpec(Part):
    arg: Named
    tensor_constant_name: str


class UserSpec(Part):
    arg: TensorArgument


class InputSpec(Part):
    parameter: ParameterSpec | None = None
    buffer: BufferSpec | None = None
    tensor_constant: ConstantSpec | None = None
    user_input: UserSpec | None = None


class OutputSpec(Part):
    user_output: UserSpec | None = None


class Signature(Part):
    input_specs: tuple[InputSpec, ...]
    output_specs: tuple[OutputSpec, ...]


class NamedArgument(Part):
    name: str
    arg: dict[str, Any]


class NodeDocument(Part):
    name: str | None = None
    target: str
    inputs: tuple[NamedArgument, ...]
    outputs: tuple[dict[str, Any], ...]
    metadata: dict[str, str] = Field(default_factory=dict)


class MetaDocument(Part):
    dtype: int
    sizes: tuple[dict[str, Any], ...]
    strides: tuple[dict[str, Any], ...]
    storage_offset: dict[str, Any] = Field(default_factory=lambda: {"as_int": 0})
    requires_grad: bool = False


class Graph(Part):
    inputs: tuple[dict[str, Any], ...] = ()
    outputs: tuple[dict[str, Any], ...] = ()
    nodes: tuple[NodeDocument, ...]
    tensor_values: dict[str, MetaDocument]


class Module(Part):
    graph: Graph
    signature: Signature


class Document(Part):
    graph_module: Module


class Stored(Part):
    path_name: str
    use_pickle: bool = False
    tensor_meta: MetaDocument


class WeightsDocument(Part):
    config: dict[str, Stored]
