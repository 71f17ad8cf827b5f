"""Scripts in the style of Keras's examples end as if nothing had happened when they are killed and paused at random."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Fork
from tests.process.trainers import Trainer, saved
from tests.torture.conftest import Tell, amount
from tests.waiting import wait_for
from trainerd.rundir.state import Phase

pytestmark = pytest.mark.long

FOLDER = Path(__file__).with_name("keras_scripts")
END_SECS = 600
START_SECS = 4.0  # in this time a script begins to train
CONFIG = """
entry = "{name}.py"
logdir = "run"

[script]
adopt = {adopt}

[checkpoint]
save_model_secs = 0.2
keep_last = 2

[summary]
save_summaries_secs = 0
metrics_secs = 0
metrics_steps = 1
"""


class Script(NamedTuple):
    """A script.

    Attributes:
      name: its file's, without `.py`.
      adopt: whether it calls `model.fit`, which trainerd replaces.
      is_fits: whether its result is that of `model.fit`, bit for bit: each epoch has the same order.
    """

    name: str
    adopt: bool = True
    is_fits: bool = False


# `make test-long` runs the first, which is the quickest; tests/process/test_scripts.py has a loop over fit.
SCRIPTS = [
    Script("text_classification", is_fits=True),
    Script("char_lstm", adopt=False),
    Script("dcgan"),
    Script("image_classification", is_fits=True),
    Script("wgan_gp"),
    Script("vae", is_fits=True),
    Script("ddim"),
    Script("weather_lstm", is_fits=True),
    Script("movielens", is_fits=True),
    Script("dqn", adopt=False),
]
TRIED = SCRIPTS[: amount(1, len(SCRIPTS))]

Curves = dict[tuple[str, int], set[float]]


class Outcome(NamedTuple):
    """What a run has come to: the line that its script prints, and the points of its curves."""

    result: Any
    curves: Curves


def project(tmp_path: Path, name: str, script: Script) -> Path:
    """Return a new folder with the script and its config."""
    folder = tmp_path / name
    folder.mkdir()
    for file in (f"{script.name}.py", "outcome.py"):
        shutil.copy(FOLDER / file, folder)
    config = CONFIG.format(name=script.name, adopt=str(script.adopt).lower())
    (folder / "trainerd.toml").write_text(config, encoding="utf-8")
    return folder


def result(text: str) -> Any:
    """Return the result that a script has printed."""
    [line] = [line for line in text.splitlines() if line.startswith("result ")]
    return json.loads(line.removeprefix("result "))


def curves(logdir: Path) -> Curves:
    """Return all values that the curves have at each step. A step that was trained twice has both.

    The speed is left out, and so are the marks of checkpoints and restarts.
    """
    from tests.tensorflow.graphs import events  # it imports TensorFlow

    points: Curves = {}
    for event in events(logdir):
        for value in event.summary.value:
            is_point = value.WhichOneof("value") == "simple_value"  # others take points back after a kill
            if is_point and value.tag != "global_step/sec" and not value.tag.startswith("history/"):
                points.setdefault((value.tag, event.step), set()).add(value.simple_value)
    return points


def completed(run: Trainer) -> Outcome:
    """Wait until a run has ended by itself, and return its outcome."""
    assert run.end(END_SECS) == 0, run.text
    return Outcome(result(run.text), curves(run.rundir.path))


def start(fork: Fork, folder: Path) -> Trainer:
    """Start or resume the run."""
    return fork(folder, run=["run"])


def is_complete(run: Trainer) -> bool:
    """Whether the script has come to its end."""
    return "\nresult " in run.text


def kill(run: Trainer) -> None:
    """Kill a run."""
    run.signal(signal.SIGKILL)
    code = run.end()
    assert code == -signal.SIGKILL or is_complete(run), f"it ended with {code}:\n{run.text}"


def pause(run: Trainer, by_file: bool = False) -> None:
    """Pause a run: by a signal, or by a file if it trains."""
    if by_file and run.state.phase is Phase.TRAINING:
        (run.rundir.path / "pause").touch()
    else:
        run.signal(signal.SIGTERM)
    code = run.end()
    (run.rundir.path / "pause").unlink(missing_ok=True)  # nobody has read it if the run ended before
    assert code == 0, f"it ended with {code}:\n{run.text}"


Interrupt = Callable[[Trainer], None]
BY_TURNS: tuple[Interrupt, ...] = (kill, pause, kill, partial(pause, by_file=True))


def steps_of(run: Trainer) -> int:
    """Return the last step of a run that has ended."""
    return saved(run.rundir)[0]


def moments(chance: random.Random, count: int, end: int) -> list[int]:
    """Draw the steps at which to interrupt, in their order, in the first two thirds. 0 is before the first step."""
    early = count // 5
    return [0] * early + sorted(chance.randrange(1, 2 * end // 3) for _ in range(count - early))


def interrupted(fork: Fork, folder: Path, at: list[int], chance: random.Random) -> tuple[Outcome, int]:
    """Kill and pause a run at these steps, by turns, and let it come to its end.

    Returns:
      Its outcome, and how often it was interrupted.
    """
    done = 0
    for step, interrupt in zip(at, itertools.cycle(BY_TURNS), strict=False):
        run = start(fork, folder)
        if step == 0:
            wait_for(lambda run=run: run.state.pid == run.pid, "its state.json")  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, START_SECS))
        else:
            wait_for(
                lambda run=run, step=step: run.state.step >= step or not run.is_alive(),  # type: ignore[misc]
                lambda run=run, step=step: f"step {step} of:\n{run.text}",  # type: ignore[misc]
            )
            time.sleep(chance.uniform(0.0, 0.2))
        if not is_complete(run):
            interrupt(run)
        if is_complete(run):
            break
        done += 1
    run = start(fork, folder)
    return completed(run), done


@pytest.mark.parametrize("script", TRIED, ids=[script.name for script in TRIED])
def test_a_script_that_is_interrupted_ends_as_if_it_had_not_been(
    fork: Fork, tmp_path: Path, record_property: Tell, script: Script
) -> None:
    first = start(fork, project(tmp_path, "calm", script))
    calm = completed(first)
    end = steps_of(first)
    assert calm.curves and all(len(values) == 1 for values in calm.curves.values())
    if script.is_fits:
        own = fork(project(tmp_path, "own", script), program=f"{script.name}.py")
        assert own.end(END_SECS) == 0, own.text
        assert result(own.text) == calm.result, "it is not the training of model.fit"
    chance = random.Random(script.name)
    at = moments(chance, amount(2, 20), end)
    outcome, done = interrupted(fork, project(tmp_path, "interrupted", script), at, chance)
    assert outcome.result == calm.result, f"{done} interruptions at {at} of {end} steps changed the result"
    assert outcome.curves == calm.curves, f"{done} interruptions at {at} of {end} steps changed the curves"
    assert done >= max(2, len(at) - 4), "it ended before most of its interruptions"
    record_property(f"kills and pauses of {script.name}", done)
    if amount(0, 1):
        proof = fork(project(tmp_path, "proved", script), run=["prove"])
        assert proof.end(END_SECS) == 0 and "The same, bit for bit." in proof.text, proof.text
