"""`trainerd queue` and `trainerd agent`: what a person types, what is wrong with it, and what they say."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import Cli
from trainerd.agent import notes
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.progress import EntryProgress, Stage
from trainerd.agent.queue_folder import QueueFolder
from trainerd.daemon.alone import alone
from trainerd.system.process_identity import process_identity
from trainerd.version import __version__

NO_AGENT = "No agent runs: `trainerd agent` trains the queue.\n"


@pytest.fixture(autouse=True)
def configs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three configs and a script in an empty folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("config-home").absolute()))
    for name in ("digits", "mnist", "tune"):
        Path(f"{name}.toml").write_text(f'entry = "jobs:job"\nlogdir = "runs/{name}"\n')
    Path("train.py").write_text("print()\n")


def agent_says(version: str = __version__, gpus: tuple[int, ...] = (), **entries: EntryProgress) -> None:
    """Write what an agent that runs knows of the entries."""
    queue = QueueFolder().read().entries
    found = {
        name: EntryNotes(replace(each, since=queue[name].since), queue[name].logdir, each.why)
        for name, each in entries.items()
    }
    notes.write(AgentNotes(version, os.getpid(), *process_identity(os.getpid()), gpus=gpus, entries=found))


def names(cli: Cli) -> list[str]:
    return [each["name"] for each in json.loads(cli("queue", "--json")[1])]


def test_an_empty_queue_says_how_to_fill_it(cli: Cli) -> None:
    assert cli("queue") == (0, "The queue is empty. `trainerd queue add CONFIG` adds a run.\n")
    assert cli("queue", "--json") == (0, "[]\n")


def test_a_config_is_added_as_an_argument_or_an_option(cli: Cli) -> None:
    code, text = cli("queue", "add", "digits.toml", "--priority", "-2", "--retries", "3", "--max-steps", "9")
    assert code == 0 and text == f"added digits. `trainerd queue` shows when it trains.\n{NO_AGENT}"
    assert cli("queue", "add", "-c", "mnist.toml", "--name", "second", "--logdir", "other")[0] == 0
    found = json.loads(cli("queue", "--json")[1])
    assert [each["name"] for each in found] == ["second", "digits"]
    first = found[1]
    assert first["config"] == str(Path("digits.toml").absolute()) and first["folder"] == str(Path.cwd())
    assert first["logdir"] == str(Path("runs/digits").absolute()) and first["stage"] == "waiting"
    assert (first["priority"], first["retries"], first["max_steps"], first["gpus"]) == (-2, 3, 9, None)
    assert found[0]["logdir"] == str(Path("other").absolute())


def test_a_script_is_added_with_its_arguments(cli: Cli) -> None:
    assert cli("queue", "add", "train.py", "--adopt", "--name", "first", "--", "--epochs", "3")[0] == 0
    found = QueueFolder().read().entries["first"]
    assert found.adopt and found.arguments == ("--epochs", "3") and found.config == str(Path("train.py").absolute())
    assert found.command()[-4:] == ["--adopt", "--", "--epochs", "3"]


def test_the_table_has_the_columns_that_say_something(cli: Cli) -> None:
    cli("queue", "add", "digits.toml")
    cli("queue", "add", "mnist.toml", "--priority", "1", "--gpus", "2")
    agent_says(
        gpus=(0, 1),
        digits=EntryProgress(Stage.WAITING, why="waits for 1 GPU"),
        mnist=EntryProgress(Stage.TRAINING, gpus=(0, 1)),
    )
    code, text = cli("queue")
    assert code == 0 and [line.split() for line in text.splitlines()] == [
        ["run", "stage", "priority", "GPUs", "step", "why"],
        ["mnist", "training", "1", "0,1"],
        ["digits", "waiting", "0", "waits", "for", "1", "GPU"],
    ]


def test_an_agent_of_another_version_is_told_of(cli: Cli) -> None:
    agent_says(version="0.0.1")
    assert "The agent is trainerd 0.0.1, and this is" in cli("queue", "add", "digits.toml")[1]
    assert "restart the agent. Its runs continue." in cli("queue")[1]


def test_an_agent_of_another_machine_is_named(cli: Cli) -> None:
    cli("queue", "add", "digits.toml")
    notes.write(AgentNotes(host="tower"))
    assert "The last agent of this queue started on tower. This machine cannot check" in cli("queue")[1]


# ---------------------------------------------------------------------- change, pause, remove


def test_move_changes_the_place_or_the_priority(cli: Cli) -> None:
    for name in ("digits", "mnist", "tune"):
        cli("queue", "add", f"{name}.toml")
    assert cli("queue", "move", "tune") == (0, "moved tune\n")
    assert names(cli) == ["tune", "digits", "mnist"]
    cli("queue", "move", "mnist", "--before", "digits")
    assert names(cli) == ["tune", "mnist", "digits"]
    cli("queue", "move", "digits", "--priority", "3")
    assert names(cli) == ["digits", "tune", "mnist"]


def test_pause_and_resume(cli: Cli) -> None:
    for name in ("digits", "mnist"):
        cli("queue", "add", f"{name}.toml")
    assert cli("queue", "pause", "digits") == (0, "paused digits\n")
    assert [each["stage"] for each in json.loads(cli("queue", "--json")[1])] == ["paused", "waiting"]
    assert cli("queue", "resume", "--all") == (0, "digits waits for its turn\n")
    assert cli("queue", "pause", "--all") == (0, "paused digits\npaused mnist\n")
    assert cli("queue", "resume", "mnist") == (0, "mnist waits for its turn\n")
    assert not QueueFolder().read().entries["mnist"].paused


def test_what_is_over_is_not_started_again_by_a_pause_of_all(cli: Cli) -> None:
    for name in ("digits", "mnist", "tune"):
        cli("queue", "add", f"{name}.toml")
    agent_says(mnist=EntryProgress(Stage.DONE), digits=EntryProgress(Stage.FAILED))
    assert cli("queue", "pause", "--all") == (0, "paused tune\n")
    cli("queue", "pause", "mnist")
    assert [each["stage"] for each in json.loads(cli("queue", "--json")[1])] == ["failed", "done", "paused"]
    assert cli("queue", "resume", "--all") == (0, "tune waits for its turn\n")


def test_remove_and_resume_take_names_or_a_stage(cli: Cli) -> None:
    for name in ("digits", "mnist", "tune"):
        cli("queue", "add", f"{name}.toml")
    assert cli("queue", "remove", "--done") == (0, "no run of the queue is done\n")
    agent_says(mnist=EntryProgress(Stage.DONE), digits=EntryProgress(Stage.FAILED))
    assert cli("queue", "remove", "--done") == (0, "removed mnist\n")
    assert cli("queue", "resume", "--failed") == (0, "digits waits for its turn\n")
    assert cli("queue", "remove", "tune") == (0, "removed tune\n") and names(cli) == ["digits"]


def test_a_file_with_a_mistake_is_shown_and_can_be_removed(cli: Cli) -> None:
    cli("queue", "add", "digits.toml")
    file = QueueFolder().path / "digits.toml"
    file.write_text(file.read_text() + "priorty = 1\n")
    code, text = cli("queue")
    assert code == 0 and str(file) in text and "Did you mean `priority`?" in text
    code, text = cli("queue", "pause", "digits")
    assert code == 78 and "priorty" in text
    assert cli("queue", "remove", "digits") == (0, "removed digits\n")


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("add digits.toml", 64, "digits is in the queue already. Give this one another name with --name."),
        ("add digits.toml --name again", 64, "is in the queue already, as digits."),
        ("add digits.toml -c mnist.toml", 64, "expected a script"),
        ("add", 78, "has no trainerd.toml. Name a config or a script"),
        ("add nosuch.toml", 78, "there is no "),
        ("add nosuch.py", 78, "nosuch.py"),
        ("add mnist.toml --after digts", 64, "--after digts: no such run is in the queue. Did you mean digits?"),
        ("add mnist.toml --from best", 64, "--from best: name the run that it is of with --after."),
        ("add mnist.toml --name a/b", 64, "--name a/b: expected 1 to 64 printable characters"),
        ("add mnist.toml --priority 1001", 64, "--priority: expected a whole number from -1000 to 1000, got 1001."),
        ("add mnist.toml --priority high", 64, "--priority: expected a whole number, got 'high'."),
        ("add mnist.toml --gpus -1", 64, "--gpus: expected a whole number from 0 to 1024, got -1."),
        ("add mnist.toml --retries x", 64, "--retries: expected a whole number, got 'x'."),
        ("add mnist.toml --max-steps 0", 64, "--max-steps: expected a whole number from 1"),
        ("move", 64, "NAME is missing."),
        ("move digts", 64, "the queue has no digts. Did you mean digits?"),
        ("move digits --before nosuch", 64, "the queue has no nosuch."),
        ("pause", 64, "name a run of the queue, or give --all."),
        ("pause digits --all", 64, "name a run of the queue, or give --all."),
        ("resume --all --failed", 64, "--all and --failed contradict each other"),
        ("resume nosuch", 64, "the queue has no nosuch."),
        ("remove", 64, "name a run of the queue, or give --done."),
        ("remove nosuch", 64, "the queue has no nosuch."),
        ("ad digits.toml", 64, "no such command 'ad'"),
    ],
)
def test_bad_input_is_rejected_and_changes_nothing(cli: Cli, arguments: str, code: int, says: str) -> None:
    cli("queue", "add", "digits.toml")
    before = QueueFolder().read()
    found, text = cli("queue", *arguments.split())
    assert found == code and says in text, text
    assert QueueFolder().read() == before


def test_more_gpus_than_the_agent_has_are_rejected(cli: Cli) -> None:
    agent_says(gpus=(0, 1))
    code, text = cli("queue", "add", "digits.toml", "--gpus", "3")
    assert code == 64 and "--gpus 3: the agent has 2." in text
    assert cli("queue", "add", "digits.toml")[0] == 0 and QueueFolder().read().entries["digits"].gpus is None


def test_a_wrong_config_of_a_run_is_not_added(cli: Cli) -> None:
    Path("digits.toml").write_text('entry = "a:b"\nlogdirr = "x"\n')
    code, text = cli("queue", "add", "digits.toml")
    assert code == 78 and "Did you mean `logdir`?" in text and names(cli) == []


# ---------------------------------------------------------------------- the agent


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("slots = 0\n", "slots: expected a whole number"),
        ("slot = 2\n", "Did you mean `slots`?"),
        ('share = "soon"\n', 'share: expected a time, such as "30 min" or "2h"'),
        ('gpus = ["a"]\n', "gpus: "),
        ("slots = \n", "agent.toml"),
    ],
)
def test_a_wrong_agent_toml_is_rejected(cli: Cli, text: str, says: str) -> None:
    path = Path("config-home/trainerd/agent.toml")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    code, printed = cli("agent")
    assert code == 78 and says in printed, printed


def test_a_second_agent_is_rejected(cli: Cli) -> None:
    with alone(notes.folder(), "agent"):
        code, text = cli("agent")
    assert code == 75 and "another agent of yours runs already" in text


def test_an_agent_without_its_config_is_rejected(cli: Cli) -> None:
    code, text = cli("agent", "--config", "nosuch.toml")
    assert code == 78 and "nosuch.toml" in text
