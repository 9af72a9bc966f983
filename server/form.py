"""The fields of a request, and what they ask of the solver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator

from devices.documents.document import DocumentError, StrictModel
from devices.documents.explain import explain, shown
from devices.operation import Loss
from devices.quantities import Label, Positive
from networks.kinds import Optimizer, Place
from solver.options import Coverage, Order, SolverOptions
from solver.problem.quantities import parse_slices
from solver.requests.request import CodecWord, ProfiledModel, RequestedBudget, SliceWord

GRAPH, PROFILE, SCHEDULE = "graph.json", "profile.yaml", "schedule.json"
"""Files in the directory of a job: uploads under our own names, and the schedule."""

_NETWORKS = (".pt2", ".onnx")
_MOST_WHOLE = 2**31 - 1
_MOST_PATTERNS = 100
_LONGEST_STEM = 60

Whole: TypeAlias = Annotated[int, Field(ge=1, le=_MOST_WHOLE)]


class JobForm(StrictModel):
    """What a job is asked to do. The names and meanings are those of the options of ``solve``.

    Attributes:
        network: Name of a built-in network.
        network_file: Name under which an uploaded network lies in the job's directory.
        has_graph: Whether a costed graph was uploaded.
        profile: Name of a profile that the server has.
        has_profile: Whether a profile was uploaded.
    """

    network: Label | None = None
    network_file: Label | None = None
    has_graph: bool = False
    profile: Label | None = None
    has_profile: bool = False
    batch: Whole | None = None
    optimizer: Optimizer | None = None
    loss: Loss | None = None
    train: Annotated[tuple[Label, ...], Field(max_length=_MOST_PATTERNS)] | None = None
    lora: Label | None = None
    accumulate: Whole | Literal["auto"] | None = None
    slices: Label | None = None
    codecs: CodecWord | None = None
    parameters_in: Place = "ram"
    ram_budget: Label | None = None
    deadline: Label | None = None
    budget_covers: Coverage = "all"
    instantaneous_paging: bool = False
    no_paging: bool = False
    no_remat: bool = False
    order: Order = "auto"
    gap: Annotated[float, Field(ge=0, lt=1)] = SolverOptions.gap
    time_limit: Positive | None = None
    certify: bool = False
    strict: bool = False

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        sources = [self.network, self.network_file, self.has_graph or None]
        if sum(each is not None for each in sources) > 1:
            raise ValueError("give one of network, network_file and graph_file")
        if self.profile is not None and self.has_profile:
            raise ValueError("give one of profile and profile_file")
        if not self.has_graph:
            if self.profile is None and not self.has_profile:
                raise ValueError("a network needs a profile or a profile_file")
            return self
        if self.ram_budget is None:
            raise ValueError("a costed graph needs ram_budget, such as 512KiB, 1.2MB or 50%")
        stated = {"profile": self.profile, "profile_file": self.has_profile or None} | {
            name: getattr(self, name)
            for name in ("batch", "optimizer", "loss", "train", "lora", "accumulate", "slices")
        }
        stated["codecs"] = self.codecs
        for name, value in stated.items():
            if value is not None:
                raise ValueError(f"{name} cannot be used with a costed graph; leave it out")
        return self

    @property
    def source(self) -> ProfiledModel | None:
        """The network with its profile; None if there is a costed graph.

        Raises:
            QuantityError: The size of slices cannot be parsed.
        """
        if self.has_graph:
            return None
        words: dict[str | None, SliceWord] = {None: "auto", "auto": "auto", "none": "none"}
        slices = words.get(self.slices) or parse_slices(self.slices or "")
        return ProfiledModel(
            profile=PROFILE if self.has_profile else self.profile or "",
            model=self.network_file or self.network,
            batch=self.batch,
            optimizer=self.optimizer,
            parameters_in=self.parameters_in,
            loss=self.loss,
            train=self.train,
            accumulate=self.accumulate,
            slices=slices,
            codecs=self.codecs or "auto",
            lora=self.lora,
            strict=self.strict,
        )

    @property
    def budget(self) -> RequestedBudget:
        """The budget in the user's words."""
        return RequestedBudget(
            ram=self.ram_budget,
            deadline=self.deadline,
            covers=self.budget_covers,
            instantaneous_paging=self.instantaneous_paging,
            paging=not self.no_paging,
            rematerialization=not self.no_remat,
        )


FILES = ("network_file", "graph_file", "profile_file")
"""Fields that are files."""

_NO_TEXTS = {"has_graph", "has_profile", *FILES}
FIELDS = tuple(name for name in JobForm.model_fields if name not in _NO_TEXTS)
"""Fields of text."""


def read_form(texts: Mapping[str, Sequence[str]], files: Mapping[str, str]) -> JobForm:
    """Validate the fields of a form; an empty one counts as left out.

    Args:
        texts: Values of each field of text.
        files: Names of the uploaded files, by field.

    Raises:
        DocumentError: A field is unknown or has a value that is not allowed.
    """
    data: dict[str, object] = {}
    for name, values in texts.items():
        given = [value for value in values if value]
        if name in FILES:
            raise DocumentError(f"{name}: this is a field of text, but must be a file")
        if name == "train":
            data[name] = given or None
        elif len(given) > 1:
            raise DocumentError(f"{name}: is given {len(given)} times")
        elif given:
            data[name] = given[0]
    for name, filename in files.items():
        if name not in FILES:
            raise DocumentError(
                f"{shown(name)} is no field for a file; allowed: {', '.join(FILES)}"
            )
        if name == "network_file":
            data[name] = _network_name(filename)
    data |= {"has_graph": "graph_file" in files, "has_profile": "profile_file" in files}
    if unknown := [name for name in texts if name not in FIELDS]:
        raise DocumentError(
            f"there is no field {shown(unknown[0])}; allowed: {', '.join((*FIELDS, *FILES))}"
        )
    try:
        form = JobForm.model_validate(data)
    except ValidationError as error:
        raise DocumentError(explain(error, JobForm, "request")) from None
    form.source  # noqa: B018  refuses the size of slices
    return form


def _network_name(filename: str) -> str:
    """A harmless name for an uploaded network, which still says which file it was.

    Raises:
        DocumentError: The name does not end as that of a network does.
    """
    path = PurePath(filename.replace("\\", "/"))
    suffix = path.suffix.lower()
    if suffix not in _NETWORKS:
        allowed = " or *".join(_NETWORKS)
        raise DocumentError(f"network_file: {shown(filename)} is not a file *{allowed}")
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem)[:_LONGEST_STEM].strip("-")
    return f"{stem or 'network'}{suffix}"


def request_body() -> dict[str, Any]:
    """The form of a job for the OpenAPI description."""
    schema = JobForm.model_json_schema()
    fields = dict(schema["properties"])
    for name in ("has_graph", "has_profile"):
        del fields[name]
    for name, what in (
        ("network_file", "A network: *.pt2 of torch.export, or *.onnx"),
        ("graph_file", "A costed graph (costed-graph/1, JSON)"),
        ("profile_file", "A profile (device-profile/1, YAML)"),
    ):
        fields[name] = {
            "type": "string",
            "contentMediaType": "application/octet-stream",
            "description": what,
        }
    content = {"type": "object", "properties": fields, "description": schema["description"]}
    return {"required": True, "content": {"multipart/form-data": {"schema": content}}}
