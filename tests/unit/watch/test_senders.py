"""When a channel is tried again, and what becomes of what waits meanwhile. Time is passed in, and nothing is sent."""

from __future__ import annotations

import errno
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.conftest import FakeTime
from trainerd.errors import ConfigError
from trainerd.watch.delivery import senders
from trainerd.watch.delivery.channel import identity, require_known
from trainerd.watch.delivery.heartbeat import Heartbeat
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.delivery.senders import MOST_RETRY_SECS, Senders

KNOWN = {"protocols": ["slack"], "secure_protocols": None}
URL = "json://127.0.0.1:1/tk_SoVerySecret"


class Sender:
    """A sender that has ended, in place of a process."""

    def __init__(self, notes: Notes, *, works: bool) -> None:
        self.returncode = 0 if works else 69
        while works and (first := notes.first(identity(URL))) is not None:
            notes.delivered(first[0])

    def poll(self) -> int:
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        return "", "the notification failed: 503"


def test_a_service_that_is_down_for_a_day_is_tried_each_minute_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, works = FakeTime(0.0), False
    started: list[float] = []
    notes = Notes(tmp_path, 0.0)
    notes.take(
        "", [], [Notice("paused", "a", str(step), 1.0, f"step {step}") for step in range(5)], [identity(URL)], 0.0
    )

    def start(config: Path, name: str, folder: str) -> Sender:
        started.append(clock())
        return Sender(notes, works=works)

    monkeypatch.setattr(senders, "start", start)
    sending = Senders(tmp_path / "watch.toml", [URL], notes, timer=clock)
    with caplog.at_level(logging.WARNING):
        for second in range(0, 86400, 30):
            clock.now = float(second)
            sending.check()
    assert 86400 / MOST_RETRY_SECS / 2 < len(started) < 86400 / MOST_RETRY_SECS * 1.2
    assert notes.waiting() == {identity(URL): 5} and "SoVerySecret" not in caplog.text
    assert "channel 1 (json) will be retried in" in caplog.text and ": the notification failed: 503" in caplog.text
    works = True
    for _ in range(3):
        clock.now += MOST_RETRY_SECS
        sending.check()
    assert notes.waiting() == {}
    tried = len(started)
    sending.check()
    assert len(started) == tried


def test_a_sender_that_cannot_be_started_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, notes = FakeTime(0.0), Notes(tmp_path, 0.0)
    notes.take("", [], [Notice("paused", "a", "1", 1.0, "step 1")], [identity(URL)], 0.0)

    def start(config: Path, name: str, folder: str) -> Sender:
        if clock() == 0.0:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return Sender(notes, works=True)

    monkeypatch.setattr(senders, "start", start)
    sending = Senders(tmp_path / "watch.toml", [URL], notes, timer=clock)
    sending.check()
    assert "cannot be started" in caplog.text and notes.waiting()
    clock.now = MOST_RETRY_SECS
    sending.check()
    assert not notes.waiting()


@pytest.mark.parametrize(
    ("url", "has_apprise", "says"),
    [
        (URL, False, "channels: the package `apprise` is not installed. Install it with `"),
        ("slack://SoVerySecret", True, "channels: Apprise rejects the URL for the service 'slack': see Apprise's page"),
    ],
)
def test_a_channel_that_cannot_be_used_is_reported(
    monkeypatch: pytest.MonkeyPatch, url: str, has_apprise: bool, says: str
) -> None:
    rejecting = SimpleNamespace(add=lambda url: False, details=lambda: {"schemas": [KNOWN]})
    stand_in = SimpleNamespace(Apprise=lambda: rejecting) if has_apprise else None
    monkeypatch.setitem(sys.modules, "apprise", stand_in)
    with pytest.raises(ConfigError) as raised:
        require_known([url])
    assert says in str(raised.value) and "SoVerySecret" not in str(raised.value)


def test_a_heartbeat_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    heartbeat = Heartbeat("http://127.0.0.1:1/secret", lambda: True)
    for _ in range(2):
        heartbeat.beat()
    assert caplog.text.count("the URL of the heartbeat cannot be fetched: ") == 1 and "secret" not in caplog.text
