"""What is told of a run, in which words, and by which key it is told once."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from trainerd.rundir.run_events import Event, EventKind
from trainerd.rundir.state import LastCheckpoint, Phase, State
from trainerd.watch import rules
from trainerd.watch.delivery.channel import UndeliveredError, deliver
from trainerd.watch.delivery.notice import Notice

STATE = State(Phase.TRAINING, step=40, at=1000.0, create_time=5.0, last_checkpoint=LastCheckpoint(30, "", "", 1, 1, 1))


@pytest.mark.parametrize(
    ("event", "kind", "title"),
    [
        (Event(1, EventKind.FINISH, 9, "max_steps = 9 is reached"), "finished", "a: finished at step 9"),
        (
            Event(1, EventKind.FINISH, 9, "the target loss <= 1 is reached"),
            "target",
            "a: has reached its target at step 9",
        ),
        (Event(1, EventKind.PAUSE, 1200, "paused on request"), "paused", "a: paused at step 1,200"),
        (Event(1, EventKind.PAUSE, 9, "on request (the agent: waits until 20:00)"), "waiting", "a: waits at step 9"),
        (Event(1, EventKind.FAIL, 3, "my own mistake"), "failed", "a: failed at step 3"),
        (
            Event(1, EventKind.FAIL, 3, "the loss became nan in step 3, and"),
            "nan",
            "a: failed, since it came to NaN or infinity, at step 3",
        ),
        (
            Event(1, EventKind.FAIL, 3, "the variable 'w' holds a NaN"),
            "nan",
            "a: failed, since it came to NaN or infinity, at step 3",
        ),
        (
            Event(1, EventKind.ROLLBACK, 3, "the loss became inf in step 3: back"),
            "nan",
            "a: went back, since it came to NaN or infinity, at step 3",
        ),
        (Event(1, EventKind.ROLLBACK, 3, "the loss jumped to 3"), "rollback", "a: went back at step 3"),
        (Event(1, EventKind.REBOOT, None, ""), "reboot", "a: the machine was rebooted"),
    ],
)
def test_events(event: Event, kind: str, title: str) -> None:
    notice = rules.of_event("a", event, STATE)
    assert (notice.kind, notice.title) == (kind, title) and event.said in notice.body


def test_every_kind_of_event_can_be_reported() -> None:
    for kind in EventKind:
        assert rules.of_event("a", Event(1, kind), None).title


def test_a_kill_that_was_seen_is_the_one_that_the_next_start_notes() -> None:
    seen = rules.of_kill("a", STATE, booted_at=900.0)
    noted = rules.of_event("renamed", Event(STATE.at, EventKind.KILL, STATE.step, "it ended while training"), None)
    assert seen.key == noted.key and "resumes from step 30" in seen.body and "anew" not in seen.body
    assert "rebooted" in rules.of_kill("a", STATE, booted_at=1100.0).body


def test_two_events_of_the_same_moment_are_two() -> None:
    kinds = {rules.of_event("a", Event(1.0, kind, step), None).key for kind in EventKind for step in (None, 1, 2)}
    assert len(kinds) == 3 * len(EventKind)


def test_nothing_reaches_a_terminal_unescaped() -> None:
    notice = rules.of_event("a\x1b[2J\nb", Event(1, EventKind.FAIL, 1, "\x1b]0;title\x07 said"), None)
    assert "\x1b" not in notice.title + notice.body and "\n" not in notice.title


def in_place_of_apprise(monkeypatch: pytest.MonkeyPatch, notify: Callable[..., bool], pictures: int = 0) -> None:
    """Have every notification call this, with so many pictures."""

    class Fake(list[object]):
        def add(self, url: str) -> bool:
            return True

        def notify(self, **message: object) -> bool:
            return notify(**message)

    apprise = SimpleNamespace(
        Apprise=Fake, AppriseAttachment=lambda paths: ["picture"] * pictures, NotifyFormat=SimpleNamespace(TEXT="text")
    )
    monkeypatch.setitem(sys.modules, "apprise", apprise)


SENDS = """
import json
import apprise
from trainerd.watch.delivery.channel import deliver
from trainerd.watch.delivery.notice import Notice

kind, sent = type(apprise.Apprise.instantiate("json://host")), []
kind.body_maxlen = 100
kind.send = lambda self, body, *args, **options: sent.append(body) is None
words = " ".join(f"word{number}" for number in range(60))
deliver("json://host", Notice("summary", "", "title", 1.0, "title", words))
print(json.dumps(sent))
"""


def test_a_text_that_is_too_long_for_a_service_is_sent_in_parts() -> None:
    """Else the service rejects it at each try, and nothing that comes after it is sent.

    In a process of its own: Apprise leaves threads.
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SENDS], capture_output=True, text=True, check=True)
    sent = json.loads(done.stdout)
    assert len(sent) >= 4 and all(len(body) <= 100 for body in sent)
    assert [number for number in range(60) if not any(f"word{number}" in body for body in sent)] == []


def test_a_picture_that_a_service_rejects_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = list[object]()

    def notify(attach: object, **message: object) -> bool:
        tries.append(attach)
        return attach is None

    in_place_of_apprise(monkeypatch, notify, pictures=1)
    deliver("json://host", Notice("summary", "", "title", 1.0, "title", "body"))
    assert tries == [["picture"], None]


def test_a_channel_is_reported_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "tgram://123456:AbCdEf/98765432?topic=hush"
    said = "Failed to send to https://api.telegram.org/bot123456:AbCdEf/ of 98765432 (hush)"

    def refuse(**message: object) -> bool:
        logging.getLogger("apprise").warning(said)
        return False

    in_place_of_apprise(monkeypatch, refuse)
    with pytest.raises(UndeliveredError, match="the notification failed: Failed to send to") as caught:
        deliver(url, Notice("paused", "a", "title", 1.0, "body"))
    for secret in ("123456", "AbCdEf", "98765432", "hush"):
        assert secret not in str(caught.value)
