"""The pages that are made from the code, so that they are never behind it."""

from __future__ import annotations

from pathlib import PurePosixPath

from tools.site import api, commands, messages, reference
from tools.site.pages import LICENSE, place


def pages() -> dict[PurePosixPath, str]:
    """Return each made page by its place on the site, in the order of the navigation."""
    made = {**commands.pages(), **api.pages(), **messages.pages()}
    return {reference.PLACE: reference.page(made), place(LICENSE): _license(), **made}


def _license() -> str:
    text = LICENSE.read_text(encoding="utf-8")
    first = "trainerd is under the Apache License 2.0. See also [Changelog](changelog.md)."
    return f"# License\n\n{first}\n\n```text\n{text}```\n"
