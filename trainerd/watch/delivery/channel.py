"""A channel: whom a notice goes to, by Apprise (https://github.com/caronc/apprise)."""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainerd.errors import ConfigError, TrainerdError
from trainerd.history.plots import as_picture
from trainerd.history.story import story_of
from trainerd.rundir.paths import RunDirectory
from trainerd.system.extras import install_command
from trainerd.watch.delivery.notice import Notice

_TYPES = {
    **dict.fromkeys(("failed", "nan", "killed", "hang", "no progress", "save failed", "quarantine"), "failure"),
    **dict.fromkeys(("disk", "memory", "reboot", "rollback", "shutdown", "spot", "ups"), "warning"),
    **dict.fromkeys(("finished", "target", "best"), "success"),
}
_SECRET_CHARS = 4  # shorter parts of a URL identify nothing


class UndeliveredError(TrainerdError):
    """A notification failed."""

    exit_code = 69
    summary = "a notification of the watcher failed"


def identity(url: str) -> str:
    """Return the name of a channel for places where its URL, which is a secret, must not appear."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def service(url: str) -> str:
    """Return the kind of a channel's service, the only part of its URL that may be shown."""
    return re.sub(r"[^A-Za-z0-9+.-]", "", url.partition("://")[0])[:20]


def require_known(urls: Sequence[str]) -> None:
    """Require that Apprise knows these URLs.

    Raises:
      ConfigError: Apprise is not installed, or does not know one.
    """
    logging.getLogger("apprise").addHandler(_Heard())
    for url in urls:
        _target(url)


def _target(url: str) -> tuple[Any, Any]:
    """Return Apprise, and the target that it makes of a URL."""
    try:
        import apprise
    except ImportError:
        raise ConfigError(
            f"channels: the package `apprise` is not installed. Install it with `{install_command('watch')}`."
        ) from None
    target = apprise.Apprise()
    if not target.add(url):
        found = apprise.Apprise().details()["schemas"]
        known = {name for each in found for key in ("protocols", "secure_protocols") for name in each[key] or ()}
        if url.partition("://")[0].lower() not in known:
            raise ConfigError(f"channels: Apprise knows no service {service(url)!r}.")
        raise ConfigError(
            f"channels: Apprise rejects the URL for the service {service(url)!r}: see Apprise's page on that service."
        )
    for each in target:
        each.overflow_mode = apprise.OverflowMode.SPLIT  # what is too long for a service, which else rejects it forever
    return apprise, target


def deliver(url: str, notice: Notice) -> None:
    """Send a notice, and wait until the service has taken it.

    Args:
      url: the channel's, as Apprise reads it.
      notice: what is sent; its pictures are drawn now.

    Raises:
      UndeliveredError: the service did not take it.
      ConfigError: Apprise is not installed, or knows no such URL.
    """
    heard = _Heard()
    logging.getLogger("apprise").addHandler(heard)
    apprise, target = _target(url)
    with tempfile.TemporaryDirectory(prefix="trainerd-watch-") as folder:
        attached = apprise.AppriseAttachment(_pictures(notice, Path(folder)))
        is_taken = any(  # some services take the text and reject the picture
            target.notify(
                title=notice.title,
                body=notice.body or notice.title,
                notify_type=_TYPES.get(notice.kind, "info"),
                body_format=apprise.NotifyFormat.TEXT,
                attach=attachment,
            )
            for attachment in ([attached, None] if len(attached) else [None])
        )
    if not is_taken:
        why = _without(url, "; ".join(heard.said)) or "the service gave no reason"
        raise UndeliveredError(f"the notification failed: {why}")


def _pictures(notice: Notice, folder: Path) -> list[str]:
    """Draw the curves that go with a notice; a run that cannot be drawn goes without."""
    found = []
    for number, path in enumerate(notice.pictures, 1):
        file = folder / f"{number}-{Path(path).name}.png"
        try:
            as_picture(story_of(RunDirectory(Path(path))), file)
        except TrainerdError:
            continue
        found.append(str(file))
    return found


class _Heard(logging.Handler):
    """Keeps the messages with which Apprise reports a failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(" ".join(record.getMessage().split())[:200])


def _without(url: str, said: Any) -> str:
    """Return a text without the parts of a URL."""
    parts = re.split(r"[/:@?&=#]+", url.partition("://")[2])
    parts += [urllib.parse.unquote(part) for part in parts]  # a service may say what it was given
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SECRET_CHARS:
            said = said.replace(part, "…")
    return str(said)
