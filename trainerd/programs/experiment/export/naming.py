"""Says which export an error was in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def names_export(name: str) -> Iterator[None]:
    """Add the name of the exporter or strategy to an error of the block."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This was in the export {name!r}.")
        raise
