"""The page for people: one document with its own style and script, and nothing from elsewhere."""

from __future__ import annotations

from typing import get_args

from fastapi.responses import HTMLResponse
from markupsafe import Markup

from devices.documents.readable import NO_SOURCE, size
from devices.operation import Loss
from devices.program import program_version
from networks.kinds import Optimizer
from plots.html import page_environment, resource, source_hash
from server.choices import Choices
from server.limits import Limits


def page(choices: Choices, limits: Limits) -> HTMLResponse:
    """The page, with the names that jobs may use and the limits of the server."""
    # The report of a campaign has the same look.
    style = resource("plots.report", "page.css") + resource("server.page", "page.css")
    script = resource("server.page", "page.js")
    template = page_environment("server", "page").get_template("page.html.j2")
    text = template.render(
        choices=choices,
        no_source=NO_SOURCE,
        optimizers=get_args(Optimizer),
        losses=get_args(Loss),
        largest=size(limits.upload_bytes),
        upload_bytes=limits.upload_bytes,
        longest_s=limits.solve_s,
        kept_minutes=f"{limits.keep_s / 60:.3g}",
        program=program_version(),
        style=Markup(style),  # noqa: S704  files of this project
        script=Markup(script),  # noqa: S704
    )
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        f" style-src 'sha256-{source_hash(style)}'; script-src 'sha256-{source_hash(script)}';"
        " img-src 'self' data:; connect-src 'self'"
    )
    return HTMLResponse(text, headers={"content-security-policy": policy})
