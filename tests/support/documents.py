"""Documents as JSON, in the form in which the commands write them."""

from pathlib import Path

from devices.documents.document import StrictModel


def as_json(document: StrictModel) -> str:
    return document.model_dump_json(by_alias=True, exclude_none=True)


def write_json(path: Path, document: StrictModel) -> Path:
    path.write_text(as_json(document))
    return path
