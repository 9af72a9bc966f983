"""Pages of HTML that need no other file: their resources, and hashes for their security policy."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def page_environment(package: str, folder: str) -> Environment:
    """Environment for the templates in a folder of a package; texts are escaped."""
    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_without_controls,
    )


def resource(package: str, name: str) -> str:
    """Text of a style or script in a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """Hash by which a page's security policy admits its own style and script, and no other."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _without_controls(value: object) -> object:
    """Replace control characters, which HTML does not allow, in texts from files."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else _UNPRINTABLE for c in value)
