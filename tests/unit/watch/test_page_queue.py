"""The queue on the watcher's page: what it shows, what its buttons change, and what nobody can ask for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from tests.unit.watch.conftest import ESCAPES, MakeRun
from tests.unit.watch.test_page import ASKED, REFUSED, TOKEN, client, get, said
from trainerd.agent import notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.progress import EntryProgress, Stage
from trainerd.agent.queue_folder import QueueFolder
from trainerd.rundir import registry
from trainerd.rundir.state import Phase, State
from trainerd.system.process_identity import process_identity
from trainerd.version import __version__
from trainerd.watch.run_reader import Runs

BUTTONS = ["pause", "resume", "up", "remove"]


@pytest.fixture(autouse=True)
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueFolder:
    """The queue of this user: empty, without an agent."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return QueueFolder()


def add(queue: QueueFolder, rundir: Path | str, name: str, **fields: Any) -> QueueEntry:
    queue.add(name, QueueEntry(config="/a.toml", logdir=str(rundir), folder="/", **fields))
    return queue.read().entries[name]


def agent(
    entries: Mapping[str, EntryNotes] | None = None, *, version: str = __version__, gpus: tuple[int, ...] = ()
) -> None:
    """Have this process be the agent, which has written this of its entries."""
    notes.write(AgentNotes(version, os.getpid(), *process_identity(os.getpid()), 1, gpus, entries or {}))


def order(page: Client) -> list[str]:
    return [each["name"] for each in get(page, "/runs.json")["queue"]["entries"]]


def test_without_entries_and_an_agent_there_is_no_queue(make_run: MakeRun, runs: Runs, queue: QueueFolder) -> None:
    rundir = make_run()
    registry.remember(rundir, Path(__file__))
    page = client(runs)
    assert get(page, "/runs.json")["queue"] is None and not queue.path.exists()
    agent()
    assert get(page, "/runs.json")["queue"] == {"said": [], "count": 0, "entries": [], "can_add": ["one"]}


def test_entries_are_shown_in_their_order_with_what_the_agent_says(
    make_run: MakeRun, runs: Runs, queue: QueueFolder
) -> None:
    add(queue, "/not/begun", "new")
    entry = add(queue, make_run(step=7, max_steps=10).path, "first", priority=1)
    page = client(runs)
    assert get(page, "/runs.json")["queue"]["said"] == ["No agent runs: `trainerd agent` trains the queue."]
    trains = EntryProgress(Stage.TRAINING, entry.since, gpus=(2,))
    agent({"first": EntryNotes(trains, entry.logdir)}, version="0.0.1")
    found = get(page, "/runs.json")["queue"]
    assert "agent is trainerd 0.0.1" in found["said"][0] and found["count"] == 2
    shown = {key: found["entries"][0][key] for key in ("name", "run", "stage", "priority", "step", "end", "gpus")}
    assert shown == {
        "name": "first",
        "run": "one",
        "stage": "training",
        "priority": 1,
        "step": 7,
        "end": 10,
        "gpus": [2],
    }
    new = found["entries"][1]
    assert (new["name"], new["run"], new["step"], new["stage"]) == ("new", None, None, "waiting")
    assert new["why"] == "the agent has not seen it yet"
    assert get(page, "/runs.json?match=nothing")["queue"] == found, "a search is for runs"


def test_the_moment_is_the_browsers_to_word(make_run: MakeRun, runs: Runs, queue: QueueFolder) -> None:
    since = add(queue, make_run().path, "a").since
    waits = EntryProgress(Stage.WAITING, since)
    agent({"a": EntryNotes(waits, "/", "waits until 20:00", 5000.0)})
    page = client(runs)
    [entry] = get(page, "/runs.json")["queue"]["entries"]
    assert (entry["why"], entry["until"]) == ("", 5000.0)
    agent({"a": EntryNotes(waits, "/", "waits until b is paused", None)})
    [entry] = get(page, "/runs.json")["queue"]["entries"]
    assert (entry["why"], entry["until"]) == ("waits until b is paused", None)


def test_an_entry_is_paused_resumed_and_removed(make_run: MakeRun, runs: Runs, queue: QueueFolder) -> None:
    rundir = make_run()
    before = add(queue, rundir.path, "a b")
    page = client(runs)
    assert said(page.post("/queue/a%20b/pause", **ASKED)) == {"said": "paused a b"}
    [entry] = get(page, "/runs.json")["queue"]["entries"]
    assert (entry["path"], entry["stage"], entry["resumes"]) == ("queue/a%20b", "paused", True)
    assert said(page.post("/queue/a%20b/resume", **ASKED)) == {"said": "a b waits for its turn"}
    after = queue.read().entries["a b"]
    assert after.since > before.since and after == replace(before, since=after.since)
    assert not get(page, "/runs.json")["queue"]["entries"][0]["resumes"]
    assert said(page.post("/queue/a%20b/remove", **ASKED))["said"].startswith("removed a b")
    assert not queue.read().entries and rundir.state.exists()


@pytest.mark.parametrize("stage", [Stage.FAILED, Stage.DONE])
def test_an_entry_that_has_ended_can_be_resumed(
    runs: Runs, make_run: MakeRun, queue: QueueFolder, stage: Stage
) -> None:
    since = add(queue, make_run().path, "a").since
    agent({"a": EntryNotes(EntryProgress(stage, since), "/", "the job failed")})
    page = client(runs)
    assert get(page, "/runs.json")["queue"]["entries"][0]["resumes"]
    page.post("/queue/a/resume", **ASKED)
    assert get(page, "/runs.json")["queue"]["entries"][0]["stage"] == "waiting"


def test_an_entry_moves_up_among_equal_priorities(make_run: MakeRun, runs: Runs, queue: QueueFolder) -> None:
    make_run()
    add(queue, "/high", "high", priority=1)
    for name in "abc":
        add(queue, f"/{name}", name)
    page = client(runs)
    for name, wanted in (("c", "acb"), ("c", "cab"), ("c", "cab"), ("b", "cba")):
        assert page.post(f"/queue/{name}/up", **ASKED).status_code == 200
        assert order(page) == ["high", *wanted], name


def test_a_run_joins_the_queue_as_it_was_last_started(make_run: MakeRun, runs: Runs, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    rundir, program = make_run("one"), make_run("program")
    State(Phase.PAUSED, name="digits").write(rundir.state)
    registry.remember(rundir, script, registry.StartedScript(tmp_path / "there", True, ("--lr", "1")))
    registry.remember(program)
    agent(gpus=(0, 1))
    page = client(runs)
    assert get(page, "/runs.json")["queue"]["can_add"] == ["digits"]
    assert said(page.post("/run/digits/queue", **ASKED)) == {"said": "added digits to the queue"}
    [entry] = QueueFolder().read().entries.values()
    assert (entry.config, entry.logdir, entry.folder) == (str(script), str(rundir.path), str(tmp_path / "there"))
    assert (entry.adopt, entry.arguments, entry.gpus) == (True, ("--lr", "1"), None)
    assert get(page, "/runs.json")["queue"]["can_add"] == []
    again, unknown = (page.post(f"/run/{name}/queue", **ASKED) for name in ("digits", "program"))
    assert again.status_code == 400 and "in the queue already, as digits" in said(again)["error"]
    assert unknown.status_code == 400 and "the config of program is not recorded" in said(unknown)["error"]


def test_a_run_whose_config_is_gone_cannot_join(make_run: MakeRun, runs: Runs, tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.touch()
    registry.remember(make_run(), config)
    agent()
    page = client(runs)
    assert get(page, "/runs.json")["queue"]["can_add"] == ["one"]
    config.unlink()
    assert get(page, "/runs.json")["queue"]["can_add"] == []
    assert page.post("/run/one/queue", **ASKED).status_code == 400


def test_runs_of_one_name_join_under_several(make_run: MakeRun, runs: Runs) -> None:
    for path in ("a/one", "b/one"):
        registry.remember(make_run(path), Path(__file__))
    page = client(Runs(lambda: [each.path for each in registry.known()]))
    agent()
    for name in get(page, "/runs.json")["queue"]["can_add"]:
        assert page.post(f"/run/{name}/queue", **ASKED).status_code == 200
    assert sorted(QueueFolder().read().entries) == ["one", "one@b"]


def test_a_run_whose_folder_is_no_name_joins_under_another(make_run: MakeRun, runs: Runs) -> None:
    long = "n" * 80
    for name in (".hidden", long):
        registry.remember(make_run(name), Path(__file__))
    agent()
    page = client(runs)
    for name in (".hidden", long):
        assert page.post(f"/run/{name}/queue", **ASKED).status_code == 200
    assert sorted(QueueFolder().read().entries) == ["run-2", "run@runs"]


# ---------------------------------------------------------------------- what nobody can ask for


@pytest.mark.parametrize("name", ["../a", "..%2Fa", "%2Fetc%2Fpasswd", "a%00", ".lock", "", "b", "a.toml"])
@pytest.mark.parametrize("what", BUTTONS)
def test_a_name_that_is_no_entrys_changes_nothing(
    make_run: MakeRun, runs: Runs, queue: QueueFolder, tmp_path: Path, what: str, name: str
) -> None:
    make_run()
    add(queue, "/a", "a")
    beside = queue.path.parent / "a.toml"
    beside.write_bytes((queue.path / "a.toml").read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    answer = client(runs).post(f"/queue/{name}/{what}", **ASKED)
    assert answer.status_code in (400, 404) and said(answer)["error"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("sent", REFUSED)
@pytest.mark.parametrize("path", [*(f"/queue/a/{what}" for what in BUTTONS), "/run/one/queue"])
def test_another_site_changes_nothing(
    make_run: MakeRun, runs: Runs, queue: QueueFolder, path: str, sent: dict[str, Any]
) -> None:
    registry.remember(make_run(), Path(__file__))
    before = add(queue, "/a", "a")
    page = client(runs)
    assert page.post(path, **sent).status_code in (403, 415)
    assert page.get(path).status_code == 405
    assert client(runs, token=TOKEN).post(path, **ASKED).status_code == 401
    assert queue.read().entries == {"a": before}


def test_what_a_file_says_is_shown_harmless(make_run: MakeRun, runs: Runs, queue: QueueFolder) -> None:
    make_run()
    since = add(queue, f"/{ESCAPES}", "<b>").since
    agent({"<b>": EntryNotes(EntryProgress(Stage.FAILED, since), "/", ESCAPES)})
    (queue.path / "bad.toml").write_text(f'config = 3\n"{ESCAPES[4:]}" = 1')
    for number in range(20):
        (queue.path / f"bad-{number}.toml").touch()
    answer = client(runs).get("/runs.json")
    found = json.loads(answer.data)["queue"]
    assert all(letter.isprintable() for letter in json.dumps(found, ensure_ascii=False))
    assert [entry["name"] for entry in found["entries"]] == ["<b>"] and len(found["said"]) == 5
    refused = client(runs).post("/queue/bad/pause", **ASKED)
    assert refused.status_code == 500 and "bad.toml" in said(refused)["error"]
    assert client(runs).post("/queue/bad/remove", **ASKED).status_code == 200 and not (queue.path / "bad.toml").exists()


def test_a_queue_that_cannot_be_read_is_said_beside_the_runs(make_run: MakeRun, runs: Runs, queue: QueueFolder) -> None:
    make_run()
    add(queue, "/a", "a")
    (queue.path / "a.toml").unlink()
    (queue.path / "a.toml").mkdir()
    found = get(client(runs), "/runs.json")
    assert [run["name"] for run in found["runs"]] == ["one"] and "a.toml" in found["queue"]["said"][0]


def test_files_are_read_again_only_when_they_change(
    make_run: MakeRun, runs: Runs, queue: QueueFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    add(queue, "/a", "a")
    reads, read = list[Path](), QueueEntry.read

    def noted(path: Path) -> QueueEntry:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(QueueEntry, "read", noted)
    page = client(runs)
    for _ in range(3):
        assert order(page) == ["a"]
    assert len(reads) == 1
    page.post("/queue/a/pause", **ASKED)
    reads.clear()
    for _ in range(3):
        assert get(page, "/runs.json")["queue"]["entries"][0]["stage"] == "paused"
    assert len(reads) == 1
    file = queue.path / "a.toml"  # an editor may write in place, which the folder does not show
    file.write_text(file.read_text().replace("paused = true", ""))
    assert get(page, "/runs.json")["queue"]["entries"][0]["stage"] == "waiting"


def test_metrics_count_the_entries(make_run: MakeRun, runs: Runs, queue: QueueFolder) -> None:
    make_run()
    assert 'trainerd_queue_entries{stage="waiting"} 0.0' in client(runs).get("/metrics").text
    add(queue, "/a", "a")
    add(queue, "/b", "b", paused=True)
    text = client(runs).get("/metrics").text
    assert all(f'trainerd_queue_entries{{stage="{stage}"}} 1.0' in text for stage in ("waiting", "paused"))
