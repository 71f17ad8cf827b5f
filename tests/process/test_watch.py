"""The watcher as a process: what it tells, when, and how often, whatever happens to it and to the endpoint."""

from __future__ import annotations

import base64
import random
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.process.watchers import SECRET, Endpoint, Watch, Watcher, write_settings
from tests.unit.test_story import add as write_curve
from tests.waiting import wait_for
from trainerd.rundir import registry
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind, add
from trainerd.watch.delivery import senders
from trainerd.watch.delivery.channel import identity
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.notice import Notice

TRAINER = """
import sys, time
from pathlib import Path
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase
with claimed(RunDirectory(Path(sys.argv[1])), "jobs:job") as reporter:
    reporter.update(phase=Phase.TRAINING, step=7)
    print("trains", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of a user of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    found = Endpoint()
    yield found
    found.close()


@pytest.fixture
def other() -> Iterator[Endpoint]:
    found = Endpoint()
    yield found
    found.close()


@pytest.fixture
def watch(tmp_path: Path, state_home: Path) -> Iterator[Watch]:
    """Start a watcher; what is left of it is killed."""
    found: list[Watcher] = []

    def go(settings: Path) -> Watcher:
        found.append(Watcher(settings, tmp_path / "watch.log", state_home))
        return found[-1]

    yield go
    for watcher in found:
        watcher.kill()


def run_in(path: Path) -> RunDirectory:
    """A run that is known."""
    rundir = RunDirectory(path)
    rundir.create()
    registry.remember(rundir)
    return rundir


def is_watching(state_home: Path) -> bool:
    """Whether a watcher has begun to."""
    return (state_home / "trainerd" / "watch" / "lock").exists()


def test_a_dead_trainer_is_reported_within_seconds_and_no_secret_is_shown(
    watch: Watch, endpoint: Endpoint, tmp_path: Path, state_home: Path
) -> None:
    watcher = watch(write_settings(tmp_path / "watch.toml", f"json://{endpoint.address}"))
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path / "digits")], stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None and trainer.stdout.readline() == "trains\n"
    wait_for(lambda: is_watching(state_home), "the watcher")
    add(RunDirectory(tmp_path / "digits"), EventKind.REBOOT)
    wait_for(lambda: endpoint.titles == ["digits: the machine was rebooted"], "a sign that it has seen the run")
    wait_for(lambda: not _children(watcher), "the end of the sender of that")
    endpoint.hangs_secs = 2.0
    killed_at = time.time()
    trainer.kill()
    trainer.communicate()
    seen = wait_for(lambda: _children(watcher) or None, "a sender")
    assert not any(SECRET in part for line in seen for part in line)
    [(told_at, body)] = wait_for(lambda: endpoint.heard[1:] or None, "the notice")
    assert body["title"] == "digits: was killed at step 7 or later"
    assert told_at - killed_at - endpoint.hangs_secs < 10.0  # 2 s on a machine that does nothing else
    assert watcher.end() == 0
    assert SECRET not in watcher.text
    for path in (state_home / "trainerd" / "watch").iterdir():
        assert SECRET.encode() not in path.read_bytes()
    assert stat.S_IMODE((state_home / "trainerd" / "watch").stat().st_mode) == 0o700


def _children(watcher: Watcher) -> list[list[str]]:
    try:
        return [child.cmdline() for child in psutil.Process(watcher.process.pid).children()]
    except psutil.Error:
        return []


@pytest.mark.long
def test_each_event_is_reported_once_in_order_though_watcher_and_endpoint_fail(
    watch: Watch, endpoint: Endpoint, tmp_path: Path, state_home: Path
) -> None:
    settings = write_settings(tmp_path / "watch.toml", f"json://{endpoint.address}")
    rundir, expected = run_in(tmp_path / "digits"), []
    watcher, random_ = watch(settings), random.Random(7)
    wait_for(lambda: is_watching(state_home), "the watcher")
    endpoint.is_down = True
    for number in range(24):
        add(rundir, EventKind.PAUSE, step=number)
        expected.append(f"digits: paused at step {number}")
        if number == 2:
            output = watcher.output
            wait_for(lambda output=output: "channel 1 (json) will be retried" in output.read_text(), "a failure")  # type: ignore[misc]
            endpoint.is_down = False
        time.sleep(random_.random() * 0.4)
        if number in (5, 11, 17):
            watcher.kill()
            watcher = watch(settings)
    wait_for(lambda: len(endpoint.titles) >= 24, lambda: f"{endpoint.titles}, {watcher.text}")
    assert watcher.end() == 0 and not _children(watcher)
    assert endpoint.titles == expected


@pytest.mark.long
def test_an_endpoint_that_hangs_delays_no_other(
    watch: Watch, endpoint: Endpoint, other: Endpoint, tmp_path: Path, state_home: Path
) -> None:
    endpoint.hangs_secs = 60.0
    more = f'heartbeat_url = "http://{other.address}"\nheartbeat_secs = 5\n'
    urls = (f"json://{endpoint.address}?rto=6", f"json://{other.address}")
    watcher = watch(write_settings(tmp_path / "watch.toml", *urls, more=more))
    rundir = run_in(tmp_path / "digits")
    wait_for(lambda: is_watching(state_home), "the watcher")
    for step in range(3):
        add(rundir, EventKind.PAUSE, step=step)
        wait_for(lambda step=step: other.titles[step:] == [f"digits: paused at step {step}"], "the other")  # type: ignore[misc]
    assert not endpoint.heard
    wait_for(lambda: bool(other.beats), "a heartbeat")
    began = time.monotonic()
    assert watcher.end(signal.SIGINT) == 0
    assert time.monotonic() - began < 20.0  # a notice that is being sent is waited for


def test_a_summary_comes_with_the_curves_as_pictures(endpoint: Endpoint, tmp_path: Path) -> None:
    rundir, url = run_in(tmp_path / "digits"), f"json://{endpoint.address}"
    write_curve(rundir, "1", 0, {step: 1 / step for step in range(1, 100)})
    settings, folder = write_settings(tmp_path / "watch.toml", url), tmp_path / "notes"
    paths = (str(rundir.path), str(tmp_path / "gone"))
    notice = Notice("summary", "", "summary", 1.0, "a day", "a line", paths)
    Notes(folder, 0.0).take("", [], [notice], [identity(url)], 1.0)
    assert senders.start(settings, identity(url), str(folder)).communicate()[1] == ""
    [(_, body)] = endpoint.heard
    [picture] = body["attachments"]
    assert picture["filename"] == "1-digits.png" and base64.b64decode(picture["base64"]).startswith(b"\x89PNG")
    assert (body["title"], body["message"]) == ("a day", "a line") and Notes(folder, 0.0).waiting() == {}


def test_a_channel_that_the_settings_no_longer_have_is_an_error(tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "watch.toml", "json://127.0.0.1:1/new")
    sender = senders.start(settings, identity("json://127.0.0.1:1/old"), str(tmp_path / "notes"))
    said = sender.communicate()[1]
    assert sender.returncode == 78 and "restart the watcher" in said and "127.0.0.1" not in said


@pytest.mark.long
def test_what_a_person_gets_wrong_is_said_without_a_traceback(
    watch: Watch, endpoint: Endpoint, tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "trainerd", "watch", *arguments], capture_output=True, text=True, timeout=60
        )
        assert "Traceback" not in done.stderr and SECRET not in done.stderr + done.stdout
        return done.returncode, done.stdout + done.stderr

    settings = write_settings(tmp_path / "watch.toml", f"json://{endpoint.address}", f"nosuch://{SECRET}")
    code, said = run("--config", str(settings), "--test")
    assert code == 69 and re.search(
        r"channel 1 \(json\): sent\n.*channel 2 \(nosuch\): channels: Apprise knows no", said
    )
    assert endpoint.titles == ["trainerd: a test"]
    code, said = run("--config", str(settings))
    assert code == 78 and "Apprise knows no service 'nosuch'" in said
    first = watch(write_settings(tmp_path / "one.toml", page='listen = "127.0.0.1:0"\n'))
    url = wait_for(lambda: re.search(r"the page is at (http://127\.0\.0\.1:(\d+)/)", first.text), "the page")
    with urllib.request.urlopen(f"{url[1]}healthz", timeout=30) as answer:
        assert answer.read() == b"ok\n"
    wrong = {f"127.0.0.1:{url[2]}": f"cannot listen on port {url[2]}", "0.0.0.0:0": "give a token"}
    for listen, said_of_it in wrong.items():
        write_settings(tmp_path / "page.toml", page=f'listen = "{listen}"\n')
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other state"))
        code, said = run("--config", str(tmp_path / "page.toml"))
        assert code == 78 and said_of_it in said
    monkeypatch.setenv("XDG_STATE_HOME", str(state_home))
    code, said = run("--config", str(tmp_path / "one.toml"))
    assert code == 75 and "another watcher of yours runs already" in said
    assert first.end() == 0
    assert run("--config", str(tmp_path / "none.toml"))[0] == 78
    off = 'listen = ""\n[interruptions]\nsleep = "off"\nshutdown = "off"\n'
    code, said = run("--config", str(write_settings(tmp_path / "idle.toml", page=off)))
    assert code == 78 and "leaves nothing to do" in said
    assert run("--test", "--config", str(tmp_path / "one.toml"))[0] == 78
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert run("--config", str(tmp_path / "one.toml"))[0] == 74
