"""The pages that are made from the code, so that they are never behind it."""

from __future__ import annotations

from pathlib import PurePosixPath

from tools.site import api, commands, messages, reference


def pages() -> dict[PurePosixPath, str]:
    """Return each made page by its place on the site, in the order of the navigation."""
    made = {**commands.pages(), **api.pages(), **messages.pages()}
    return {reference.PLACE: reference.page(made), **made}
