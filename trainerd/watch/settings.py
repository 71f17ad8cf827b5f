"""The config of the watcher, watch.toml: whom to notify, of what, where the page is, and what to do before the machine
stops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainerd.config import tables
from trainerd.config.tables import key
from trainerd.system.machine import NAME
from trainerd.system.private_files import require_private
from trainerd.system.xdg import config_home

FILE = "watch.toml"
NoticeKind = Literal[
    "started",
    "resumed",
    "finished",
    "target",
    "paused",
    "waiting",
    "failed",
    "nan",
    "killed",
    "reboot",
    "hang",
    "no progress",
    "save failed",
    "copy behind",
    "quarantine",
    "rollback",
    "change",
    "evaluation",
    "best",
    "disk",
    "memory",
    "sleep",
    "shutdown",
    "spot",
    "ups",
]
# Without what a person does himself, and what comes too often.
BY_DEFAULT: tuple[NoticeKind, ...] = (
    *("finished", "target", "paused", "failed", "nan", "killed", "reboot", "hang", "no progress", "save failed"),
    *("copy behind", "quarantine", "rollback", "best", "disk", "memory", "shutdown", "spot", "ups"),
)
Response = Literal["save", "pause", "off"]
Cloud = Literal["aws", "gcp", "azure"]
TimeOfDay = Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description='a time of day, such as "08:00"')]
Minutes = Annotated[float, Meta(ge=0, le=1e6)]


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """Whom to notify, and of what."""

    channels: tuple[str, ...] = key(
        (), "", 'Whom to notify: URLs of Apprise, such as "ntfy://ntfy.sh/a-long-topic" or "mailto://…". Secret.'
    )
    events: tuple[NoticeKind, ...] = key(BY_DEFAULT, "", "Of what to notify.")
    runs: tuple[str, ...] = key((), "", "The names of the runs to notify of. Default: all.")
    no_progress_mins: Minutes = key(
        30.0, "min", "Notify of a run that trains and has made no step for so long. 0: never."
    )
    copy_behind_mins: Minutes = key(
        30.0, "min", "Notify of a run whose newest checkpoint is not copied, and nothing is for so long. 0: never."
    )
    disk_hours: Annotated[float, Meta(ge=0, le=1e4)] = key(
        24.0, "h", "Notify of a disk that is full within so long at the present rate. 0: never."
    )
    memory_hours: Annotated[float, Meta(ge=0, le=1e4)] = key(
        24.0, "h", "Notify of a run whose memory grows, and fills the machine's within so long. 0: never."
    )
    summary_at: TimeOfDay | None = key(
        None, "", 'When the daily summary is sent, such as "08:00", in local time. Default: none is.'
    )
    heartbeat_url: str | None = key(
        None, "", "Fetched every `heartbeat_secs`, for a service that alerts you when that ends. Secret."
    )
    heartbeat_secs: Annotated[float, Meta(ge=5, le=86400)] = key(
        60.0, "s", "Seconds between two heartbeats; at least 5."
    )


@dataclass(frozen=True, kw_only=True)
class PageConfig:
    """The address of the page and the metrics, and their token."""

    listen: str = key(
        "127.0.0.1:9780",
        "",
        'The address of the page: "HOST:PORT", or "unix:/PATH" for a socket. Any but this machine\'s own needs a '
        "`token`. Empty: no page.",
    )
    token: Annotated[str, Meta(min_length=16)] | None = key(
        None, "", "What a browser or Prometheus has to show. 16 characters or more. Secret. Default: none is needed."
    )


@dataclass(frozen=True, kw_only=True)
class InterruptionsConfig:
    """The requests to the runs before the machine stops, and the sources that announce that."""

    sleep: Response = key("save", "", 'Before the machine sleeps: "save", "pause" or "off".')
    shutdown: Response = key("pause", "", "Before it shuts down or reboots.")
    spot: Response = key("pause", "", "When `cloud` announces that it takes the machine away.")
    cloud: Cloud | None = key(
        None, "", "The cloud whose metadata service is asked for such announcements. Default: no cloud is asked."
    )
    metadata_url: str | None = key(None, "", "The address of the metadata service. Default: that of the cloud.")
    ups: Response = key("pause", "", "When the battery of `ups_name` is almost empty.")
    ups_name: Annotated[str, Meta(min_length=1)] | None = key(
        None, "", 'The name of a UPS that you give to `upsc` of NUT, such as "ups@localhost". Default: none.'
    )
    ups_runtime_secs: Annotated[float, Meta(ge=0, le=1e5)] = key(
        120.0, "s", "On battery, less remaining runtime than this counts as almost empty. So does NUT's status `LB`."
    )

    @property
    def is_off(self) -> bool:
        """True if no run is ever asked."""
        spot = self.spot if self.cloud is not None else "off"
        ups = self.ups if self.ups_name is not None else "off"
        return {self.sleep, self.shutdown, spot, ups} == {"off"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings in one watch.toml."""

    watch: WatchConfig = field(default_factory=WatchConfig)
    page: PageConfig = field(default_factory=PageConfig)
    interruptions: InterruptionsConfig = field(default_factory=InterruptionsConfig)

    @property
    def has_secrets(self) -> bool:
        """True if there is anything in it that others may not read."""
        return bool(self.watch.channels or self.watch.heartbeat_url or self.page.token)


def find(path: Path | None) -> Path | None:
    """Return the file of the settings: the one that is given, the user's own if there is one, or else none."""
    if path is not None:
        return (path / FILE if path.is_dir() else path).absolute()
    return own if (own := own_path()).exists() else None


def own_path() -> Path:
    """Return the path of the user's own file, which need not exist."""
    return config_home() / NAME / FILE


def load(path: Path | None) -> Settings:
    """Read the settings; the defaults if there is no file.

    Raises:
      ConfigError: it cannot be read, holds mistakes, or holds secrets and others may read it.
    """
    if path is None:
        return Settings()
    settings = parse(tables.read(path, "docs/watch.md shows one to start from."), path)
    if settings.has_secrets:
        require_private(path)
    return settings


def parse(data: dict[str, Any], path: Path | None = None) -> Settings:
    """Validate what a file holds. No secret of it is in an error.

    Raises:
      ConfigError: with every mistake.
    """
    reader = tables.Tables(Settings, is_secret=True)
    settings: Settings = reader.read(data)
    mistakes = reader.mistakes or [*_mistakes(settings), *_unannounced(data)]
    tables.require_none(mistakes, path)
    return settings


def _unannounced(data: dict[str, Any]) -> Iterator[str]:
    """Yield each answer to an interruption whose source the file does not name."""
    given = data.get("interruptions", {})
    for answer, source, example in (("spot", "cloud", "aws"), ("ups", "ups_name", "ups@localhost")):
        if given.get(answer, "off") != "off" and source not in given:
            yield f'interruptions.{answer}: nothing announces it without `{source}`. Add {source} = "{example}"'


def _mistakes(settings: Settings) -> list[str]:
    found = [
        f"watch.channels: number {number} is not a URL: it has no `://`"
        for number, url in enumerate(settings.watch.channels, 1)
        if "://" not in url
    ]
    url = settings.watch.heartbeat_url
    if url is not None and not re.match(r"https?://[^/\s]", url):
        found.append("watch.heartbeat_url: expected a URL that begins with http:// or https://")
    url = settings.interruptions.metadata_url
    if url is not None and not re.match(r"http://[^/\s]+/?$", url):
        found.append("interruptions.metadata_url: expected http://HOST or http://HOST:PORT, without a path")
    ups = settings.interruptions.ups_name
    if ups is not None and not re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(@[A-Za-z0-9_.:\[\]-]+)?", ups):
        found.append('interruptions.ups_name: expected the name of a UPS, such as "ups@localhost"')
    return found
