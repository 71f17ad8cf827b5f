"""The pages that are made from the code, so that they are never behind it."""

from __future__ import annotations

from pathlib import PurePosixPath

from tools.site import api, commands, messages


def pages() -> dict[PurePosixPath, str]:
    """Each made page by its place on the site."""
    return {**commands.pages(), **api.pages(), **messages.pages()}
