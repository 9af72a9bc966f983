"""Documents as JSON, in the form in which the commands write them."""

from pathlib import Path

from devices.documents.document import StrictModel


def as_json(document: StrictModel) -> str:
    """The document as JSON text."""
    return document.model_dump_json(by_alias=True, exclude_none=True)


def write_json(path: Path, document: StrictModel) -> Path:
    """Write the document to ``path``; returns the path."""
    path.write_text(as_json(document))
    return path
