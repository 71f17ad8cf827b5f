"""The file `set`: numbers that a running job is to take, one request a line."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import msgspec

from trainerd.errors import UsageError
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory


@dataclass(frozen=True)
class SetRequest:
    """One request.

    Attributes:
      values: name to number.
      id: of the command that waits for an answer; empty if none does.
    """

    values: dict[str, float]
    id: str = ""

    def to_line(self) -> str:
        """Return the request as a line of the file."""
        return json.dumps(asdict(self)) + "\n"


def parse(said: str) -> dict[str, float]:
    """Read NAME=NUMBER, or several with blanks between.

    Raises:
      UsageError: it is something else.
    """
    values = {}
    for each in said.split():
        name, equals, number = each.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not name or not math.isfinite(value):
            raise UsageError(f"expected NAME=NUMBER, such as learning_rate=1e-4, got {each!r}.")
        if name in values:
            raise UsageError(f"{name} is set twice.")
        values[name] = value
    return values


def take(rundir: RunDirectory) -> list[SetRequest]:
    """Remove the file `set`. Returns its requests. Other lines are skipped, and the log names them."""
    found = []
    for line in request_files.consume_lines(rundir.set_request):
        try:
            found.append(_read(line))
        except UsageError as error:
            request_files.log.warning("%s: %s", rundir.set_request, error)
    return found


def _read(line: str) -> SetRequest:
    if not line.startswith("{"):
        return SetRequest(parse(line))
    try:
        return msgspec.json.decode(line, type=SetRequest)
    except msgspec.DecodeError as error:
        raise UsageError(f"a line of the request cannot be read: {error}") from error
