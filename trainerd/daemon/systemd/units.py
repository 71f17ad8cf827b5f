"""Makes the systemd unit for this machine from a template that ships. Pure: nothing is read or written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainerd.errors import UsageError
from trainerd.system.machine import NAME

# What a user's own service manager honours. The sandbox and the directories of a system unit need root.
_WHOLE = ("Description", "StartLimitBurst", "StartLimitIntervalSec", "WantedBy")
_LIFE = ("Type", "NotifyAccess", "ExecStart", "ExecReload", "KillMode", "Restart", "RestartSec", "Environment")
_ENDS = ("RestartPreventExitStatus", "TimeoutStartSec", "TimeoutStopSec", "TimeoutAbortSec", "WatchdogSec", "OOMPolicy")
_LIMITS = ("LimitCORE", "UMask", "NoNewPrivileges", "RestrictSUIDSGID", "RestrictRealtime", "LockPersonality")
FOR_USERS = frozenset((*_WHOLE, *_LIFE, *_ENDS, *_LIMITS, "SystemCallArchitectures"))
_OF_SYSTEM_UNITS = ("%C/", "%d/")  # the folders for the cache and the credentials
_USER_PREAMBLE = "# A unit of one user's own service manager. See docs/systemd.md."


@dataclass(frozen=True)
class Directive:
    """One setting of a unit, with the comment that explains it.

    Attributes:
      name, value: the two sides of its `=`.
      comment: the comment lines above it.
    """

    name: str
    value: str
    comment: tuple[str, ...] = ()


def directives(unit: str) -> Iterator[Directive]:
    """Yield every setting of a unit, in its order."""
    for comment, line in _commented(unit):
        name, equals, value = line.partition("=")
        if equals:
            yield Directive(name, value, tuple(comment))


def _commented(unit: str) -> Iterator[tuple[list[str], str]]:
    """Yield the comment lines above each other line of a unit, and that line."""
    comment: list[str] = []
    for line in unit.splitlines():
        if line.startswith("#"):
            comment.append(line)
        else:
            yield comment, line
            comment = []


def render(template: str, exec_start: str, *, user: bool = False) -> str:
    """Return a template with its ExecStart set; for a user's service manager, without the settings that it ignores.

    Args:
      template: the text of a unit that ships.
      exec_start: the whole command, quoted for systemd already.
      user: whether the unit is for `systemctl --user`.
    """
    lines: list[str] = []
    for comment, line in _commented(template):
        name, equals, value = line.partition("=")
        if equals and user and not _is_for_users(name, value):
            continue
        if name == "ExecStart":
            lines += ["# What runs, in the foreground.", f"ExecStart={exec_start}"]
        elif user and name == "WantedBy":
            lines += ["# Start when this user's service manager starts.", "WantedBy=default.target"]
        else:
            lines += [*comment, line]
    text = "\n".join(lines) + "\n"
    return _for_user(text) if user else text


def _is_for_users(name: str, value: str) -> bool:
    names_folder = name == "Environment" and any(place in value for place in _OF_SYSTEM_UNITS)
    return name in FOR_USERS and not names_folder


def _for_user(text: str) -> str:
    """Remove what is for the system alone from a unit, and headings without settings."""
    body = text[text.index("[Unit]") :].replace("`systemctl ", "`systemctl --user ")
    blocks = [block for block in body.split("\n\n") if not block.startswith("# ----") or "\n" in block.strip()]
    return "\n\n".join([_USER_PREAMBLE, *(block.strip("\n") for block in blocks if block.strip())]) + "\n"


# What a template and its comments say of an instance, and what the unit without one says.
_WITHOUT_INSTANCE = {
    " (%i)": "",
    "-%i": "",
    "%i-": "",
    "@NAME": "",
    "@.service": ".service",
    "/NAME.toml": f"/{NAME}.toml",
    f"{NAME}-NAME": NAME,
}


def without_instance(template: str) -> str:
    """Return the unit of the one run that has no name, from the template for several."""
    for named, plain in _WITHOUT_INSTANCE.items():
        template = template.replace(named, plain)
    return template


def quote(argument: str) -> str:
    """Return one argument of a command, quoted for systemd to read back. See systemd.service(5), "Command lines".

    Raises:
      UsageError: it holds a line break or another control character.
    """
    return quote_path(argument).replace("$", "$$")


def quote_program(path: str) -> str:
    """Return the program of a command, for which systemd has other rules: it cannot hold a `$`.

    Raises:
      UsageError: systemd cannot run a program with this path.
    """
    if "$" in path:
        raise UsageError(f"systemd cannot run a program with a $ in its path: {path}. Move it.")
    return quote_path(path)


def quote_path(text: str) -> str:
    """Return the value of a setting that is a path, quoted for systemd.

    Raises:
      UsageError: it holds a line break or another control character.
    """
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise UsageError(f"a unit cannot hold a path with a line break or a control character: {text!r}. Move it.")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    plain = text.isascii() and all(letter.isalnum() or letter in "/._-+:=@,%$" for letter in text)
    return escaped if plain and text else f'"{escaped}"'
