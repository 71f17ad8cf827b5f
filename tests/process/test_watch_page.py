"""The watcher's page with a real trainer, in a real browser, and its metrics in a real Prometheus."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from tests.process.conftest import Start, write_config
from tests.process.trainers import saved
from tests.tensorflow.chromium import Page as Tab
from tests.tensorflow.chromium import browser, end_group, fetch, poll
from tests.unit.watch.test_run_reader import record
from trainerd.agent import notes as agent_notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.progress import EntryProgress
from trainerd.agent.queue_folder import QueueFolder
from trainerd.checkpoints import manifest
from trainerd.rundir import registry
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State
from trainerd.watch.page.server import Page
from trainerd.watch.run_reader import Runs

pytestmark = pytest.mark.long  # a browser and a Prometheus

QUICK = "[checkpoint]\nsave_model_secs = 0\nminima = false\n[summary]\nmetrics_steps = 20\nmetrics_secs = 0\n"
TOKEN = "a token of this test"

BUTTON = "return [...document.querySelectorAll('.actions button')].find(b => b.textContent === arguments[0])?.click()"
TEXT = "return document.querySelector(arguments[0])?.textContent ?? ''"
COUNT = "return document.querySelectorAll(arguments[0]).length"
POINTS = "return (document.querySelector('.smooth')?.getAttribute('d') ?? '').split('L').length"
IS_WIDE = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
AXE = "axe.run().then(found => window.violations = found.violations); return true"
FOUND = "return window.violations?.map(v => `${v.id}: ${v.help}: ${v.nodes.map(n => n.html).join(' ')}`)"


@contextlib.contextmanager
def served(paths: Sequence[Path], token: str | None = None) -> Iterator[str]:
    """The page of these runs; its address."""
    page = Page("127.0.0.1:0", Runs(lambda: paths), token)
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        yield f"http://{page.address}"
    finally:
        page.close()
        thread.join()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser."""
    with browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


def test_a_person_sees_the_curve_saves_and_pauses(start: Start, project: Path, tab: Tab) -> None:
    write_config(project, entry="jobs:exact", more=QUICK)
    run = start("run", "--forever")
    run.until_training(1)
    with served([run.rundir.path]) as url:
        tab.open(url)
        poll(lambda: tab.run(POINTS) > 20, "the curve")
        assert tab.run(TEXT, ".run h2") == "run" and tab.run(TEXT, "#rows .phase") == "training"
        before = saved(run.rundir)
        tab.run(BUTTON, "Save now")
        poll(lambda: saved(run.rundir) != before, "a checkpoint")
        assert manifest.read(run.rundir.manifest(saved(run.rundir)[0])).reason == "request"
        poll(lambda: tab.run(TEXT, "#details .answer") == f"saved step {saved(run.rundir)[0]:,}", "the answer")
        poll(lambda: tab.run(COUNT, ".chart > svg .m-checkpoint") == len(saved(run.rundir)), "its mark")
        tab.run(BUTTON, "Pause")
        assert tab.run(COUNT, "button.sure") == 1 and not run.rundir.pause.exists()
        run.until_training(run.state.step + 10)
        tab.run(BUTTON, "Pause")  # where it was changed of mind meanwhile
        tab.run(BUTTON, "Really pause?")
        assert run.end() == 0 and run.state.phase is Phase.PAUSED
        poll(lambda: tab.run(TEXT, "#rows .phase") == "paused", "the page to say so")
        assert tab.run(COUNT, ".actions button:disabled") == 2
        assert not violations(tab)


QUEUE = "return [...document.querySelectorAll('#entries .name')].map(each => each.textContent)"
PRESS = """
const name = each => each.querySelector('.name').textContent;
const entry = [...document.querySelectorAll('#entries li')].find(each => name(each) === arguments[0]);
const button = [...entry.querySelectorAll('button')].find(each => each.textContent === arguments[1] && !each.hidden);
return button !== undefined && (button.click(), true);
"""


def test_a_person_changes_the_queue(tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a desk and on a phone; the moment is in the time of the browser."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    paths = {name: RunDirectory(tmp_path / "runs" / name) for name in ("first", "second", "third")}
    for rundir in paths.values():
        rundir.create()
        State(Phase.PAUSED, step=3, max_steps=1000).write(rundir.state)
    registry.remember(paths["third"], Path(__file__))
    queue = QueueFolder()
    for name in ("first", "second"):
        queue.add(name, QueueEntry(config="/a.toml", logdir=str(paths[name].path), folder="/"))
    with served([each.path for each in paths.values()]) as url:
        tab.resize(390, 844)
        tab.prefer("dark")
        tab.open(f"{url}/#open=third")
        poll(lambda: tab.run(QUEUE) == ["first", "second"], "the queue")
        assert "No agent runs" in tab.run(TEXT, "#queue-said") and not violations(tab)
        tab.resize(1400, 844)
        tab.prefer("light")
        assert tab.run(PRESS, "second", "Move up")
        poll(lambda: tab.run(QUEUE) == ["second", "first"], "the new order")
        assert tab.run(PRESS, "first", "Pause") and not queue.read().entries["first"].paused
        assert tab.run(TEXT, "#queue-answer") == "Press Pause again to pause this entry and its run."
        assert tab.run(PRESS, "first", "Really pause?")
        poll(lambda: tab.run(PRESS, "first", "Resume"), "its button")
        poll(lambda: not queue.read().entries["first"].paused, "the entry to wait again")
        assert tab.run(PRESS, "second", "Remove") and tab.run(PRESS, "second", "Really remove?")
        poll(lambda: tab.run(QUEUE) == ["first"], "the entry to go")
        tab.run(BUTTON, "Add to queue")
        poll(lambda: tab.run(QUEUE) == ["first", "third"], "the run to join")
        assert not violations(tab) and list(queue.read().entries) == ["first", "third"]
        tab.run("document.querySelector('#entries .name').click()")
        poll(lambda: tab.run(COUNT, "#details .run") == 2, "the details of the run")
        paused = EntryNotes(EntryProgress(since=queue.read().entries["first"].since), "/", "waits until 20:00", 1e9)
        agent_notes.write(AgentNotes(entries={"first": paused}))
        moment = tab.run("return clock(1e9)")
        poll(lambda: tab.run(TEXT, "#entries .why") == f"until {moment}", "the moment")


def violations(tab: Tab) -> list[str]:
    """What axe-core has against the page as it is now; and whether it must be scrolled sideways."""
    tab.run(
        files("axe_playwright_python").joinpath("axe.min.js").read_text()
        + "; window.axe = axe; delete window.violations"
    )
    tab.run(AXE)
    poll(lambda: tab.run(FOUND) is not None, "axe-core")
    found: list[str] = tab.run(FOUND)
    return [*found, "it is too wide"] if tab.run(IS_WIDE) else found


def test_the_page_is_for_everybody(tab: Tab, tmp_path: Path) -> None:
    """On a desk and on a phone, by day and by night, with text that nobody should have written."""
    paths = []
    for number in range(8):
        rundir = RunDirectory(tmp_path / "runs" / (f"run-{number}" if number else "n" * 100 + "<b>&quot;</b>"))
        rundir.create()
        evil = "<img src=x onerror='window.owned = true'>" + "w" * 300
        State(Phase.FAILED, step=3, max_steps=10, metrics={evil: 1.0}, error=evil, job=evil).write(rundir.state)
        paths.append(rundir.path)
    with served(paths) as url:
        for width, scheme in ((1400, "light"), (390, "dark")):
            tab.resize(width, 844)
            tab.prefer(scheme)
            tab.open(url)
            poll(lambda: tab.run(COUNT, "#rows tr") == 8, "the runs")
            assert tab.run(COUNT, "#details .run") == 1
            tab.run("for (const each of document.querySelectorAll('.name[aria-expanded=false]')) each.click()")
            assert tab.run(COUNT, "#details .run") == 8
            tab.run("for (const each of document.querySelectorAll('details')) each.open = true")
            assert not violations(tab), (width, scheme)
        assert tab.run(COUNT, "img, b b") == 0 and tab.run("return window.owned === undefined")


CLICK = "document.querySelector(arguments[0]).click()"
NAMES = "return [...document.querySelectorAll('#rows .name')].map(each => each.textContent)"
TITLES = "return [...document.querySelectorAll('.chart h2')].map(each => each.textContent)"
LINES = "return [...document.querySelectorAll('.chart')].map(each => each.querySelectorAll('.smooth').length)"
TICKS = "return [...document.querySelectorAll('.chart:first-child .tick[text-anchor=middle]')].map(e => e.textContent)"
TYPE = "match.value = arguments[0]; match.dispatchEvent(new Event('input'))"
DRAG = """
const svg = document.querySelector('.chart > svg'), box = svg.getBoundingClientRect();
for (const [kind, share] of [['pointerdown', 0.5], ['pointermove', 0.6], ['pointerup', 0.7]])
  svg.dispatchEvent(new PointerEvent(kind, {clientX: box.left + share * box.width, pointerId: 1}));
"""
CROSS = "document.querySelector('.chart > svg').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))"


def compared(folder: Path, name: str, factor: float, **fields: Any) -> Path:
    """A run with curves of the loss, the accuracy and the epoch."""
    rundir = RunDirectory(folder / name)
    rundir.create()
    found = []
    for step in range(10, 1001, 10):
        values = {"loss": factor / step, "accuracy": 1 - factor / step, "epoch": float(step // 100)}
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        found.append(record(Event(wall_time=1e9 + step * factor, step=step, summary=summary)))
    (rundir.path / "events.out.tfevents.1").write_bytes(b"".join(found))
    metrics = {"loss": factor / 1000, "accuracy": 1 - factor / 1000, "epoch": 10.0}
    State(Phase.PAUSED, step=1000, metrics=metrics, name=name, at=1e9 + factor, **fields).write(rundir.state)
    return rundir.path


def test_runs_are_compared(tab: Tab, tmp_path: Path) -> None:
    paths = [
        compared(tmp_path, "small", 1.0, tags=["mnist", "new"]),
        compared(tmp_path, "large", 3.0, tags=["mnist"]),
        compared(tmp_path, "wide", 2.0, notes="of last week"),
    ]
    tab.resize(1400, 900)
    with served(paths) as url:
        tab.open(url)
        poll(lambda: tab.run(LINES) == [3], "three runs in a chart")
        assert tab.run(NAMES) == ["large", "wide", "small"], "the last one first"
        tab.run(CLICK, "#metrics input[value=accuracy]")
        tab.run(CLICK, "#rows tr:nth-child(2) input")
        poll(lambda: tab.run(LINES) == [2, 2], "a second metric, and one run less")
        tab.run(CLICK, "#columns input[value=notes]")
        tab.run("[...document.querySelectorAll('#head button')].find(each => each.textContent === 'loss').click()")
        assert tab.run(NAMES) == ["small", "wide", "large"] and "of last week" in tab.run(TEXT, "#rows")
        assert tab.run(TICKS) == ["200", "400", "600", "800"]
        tab.run(DRAG)
        assert tab.run(TICKS)[0] == "500" and tab.run("return view.zoom[0] > 450 && view.zoom[1] < 720")
        tab.run(CROSS)
        assert tab.run(TEXT, ".chart .here").startswith("step ") and tab.run(COUNT, ".tip:not([hidden]) div") == 2
        for name, ticks in (("epoch", "2"), ("time", "8 min")):
            tab.run(CLICK, f"#by-{name}")
            poll(functools.partial(lambda ticks: ticks in tab.run(TICKS), ticks), name)
        tab.run("const it = document.getElementById('smooth'); it.value = 0; it.dispatchEvent(new Event('input'))")
        tab.run(CLICK, "#log")
        assert tab.run(COUNT, ".raw") == 0
        tab.open("about:blank")
        before = tab.run("return location.href")
        tab.run("history.back()")
        poll(lambda: tab.run("return location.href") != before and tab.run(LINES) == [2, 2], "the same after a reload")
        assert tab.run(TITLES) == ["loss", "accuracy"] and tab.run(NAMES) == ["small", "wide", "large"]
        assert tab.run("return [view.axis, view.smooth, view.log]") == ["time", 0, False]
        assert "of last week" in tab.run(TEXT, "#rows") and not violations(tab)
        for typed, names in (("mnist", ["small", "large"]), ("last WEEK", ["wide"]), ("mnist new", ["small"])):
            tab.run(TYPE, typed)
            poll(functools.partial(lambda names: tab.run(NAMES) == names, names), typed)
        tab.run(TYPE, "nothing")
        poll(lambda: tab.run(TEXT, "#none").startswith("No run has that"), "the empty table")


def test_the_token_is_given_in_a_form(tab: Tab) -> None:
    with served([], TOKEN) as url:
        tab.open(url)
        assert not violations(tab)
        tab.run("document.querySelector('input').value = arguments[0]", TOKEN)
        tab.run("document.querySelector('button').click()")
        poll(lambda: tab.run(TEXT, ".empty").startswith("No run is known"), "the page")
        assert tab.run("return location.href") == f"{url}/" and not tab.run("return document.cookie")


# ---------------------------------------------------------------------- Prometheus


@contextlib.contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A Prometheus that scrapes the page each second; its address."""
    program = shutil.which("prometheus")
    if program is None:
        assert not os.environ.get("CI"), "install the package `prometheus`"
        pytest.skip("needs the package `prometheus`")
    (folder / "token").write_text(TOKEN)
    job = {
        "job_name": "trainerd",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": [{"targets": [target]}],
        "authorization": {"credentials_file": str(folder / "token")},
    }
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))
    output = folder / "prometheus.log"
    listen = "--web.listen-address=127.0.0.1:0"
    config = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with output.open("wb") as log:
        process = subprocess.Popen([program, listen, *config], stdout=log, stderr=log, start_new_session=True)
    try:
        where = r"Listening on\"? address=(127\.0\.0\.1:[1-9]\d*)"
        found = poll(lambda: re.findall(where, output.read_text()), "Prometheus")
        poll(lambda: "Server is ready" in output.read_text(), "Prometheus, which answers 503 until then")
        yield f"http://{found[0]}"
    finally:
        end_group(process)


def test_prometheus_scrapes_it(start: Start, project: Path, tmp_path: Path) -> None:
    write_config(project, entry="jobs:exact", more=QUICK)
    run = start("run", "--forever")
    step = run.until_training(10).step
    with served([run.rundir.path], TOKEN) as url, prometheus(tmp_path, url.removeprefix("http://")) as server:

        def ask(query: str) -> Any:
            answer = json.loads(fetch(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
            return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

        [(labels, value)] = poll(lambda: ask('trainerd_step{run="run"}'), "a scrape")
        assert value >= step and labels["job"] == "trainerd"
        assert ask('trainerd_phase{run="run"} == 1')[0][0]["trainerd_phase"] == "training"
        assert ask('trainerd_metric{metric="loss"}') and ask('trainerd_events_total{kind="start"}')[0][1] == 1
        assert poll(lambda: ask('deriv(trainerd_step{run="run"}[10s]) > 0'), "a second scrape")
        assert ask("up")[0][1] == 1
    assert run.pause() == 0
