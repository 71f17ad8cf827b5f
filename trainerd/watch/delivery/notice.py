"""A notice: what is sent to a person."""

from __future__ import annotations

from dataclasses import dataclass

from trainerd.watch.settings import NoticeKind


@dataclass(frozen=True)
class Notice:
    """One thing that happened.

    Attributes:
      kind: what kind of thing.
      run: the run's name; empty for what is of no run.
      key: distinguishes it from all others, whatever its run is called now: a known key is not sent again.
      at: when, in seconds since 1970 (UTC).
      title: it in a few words.
      body: more of it.
      pictures: the run directories whose curves are sent with it.
    """

    kind: NoticeKind | str
    run: str
    key: str
    at: float
    title: str
    body: str = ""
    pictures: tuple[str, ...] = ()
