"""The curves of one run that was killed and resumed again and again."""

from __future__ import annotations

import itertools
import signal
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import tensorflow as tf

from tests.process.trainers import Forkserver, Trainer
from tests.tensorflow.boards import LOADERS, Board, serving
from tests.waiting import wait_for
from trainerd.checkpoints import manifest

# ---------------------------------------------------------------- one run, killed and resumed again and again

# Every figure is the number of the process that measured it. `die_at` is a step in which the process kills itself,
# after what it has written so far had the time to reach the disk.
JOB = """
import os, signal, time
import tensorflow as tf
import trainerd

MARK, DIE_AT = float(os.environ["MARK"]), int(os.environ["DIE_AT"])

def job():
    kernel = tf.Variable(tf.random.normal([3, 3, 1, 6], seed=1), name="kernel")
    count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def nap(now):
        time.sleep(0.004)
        if int(now) == DIE_AT:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)

    def train_step():
        now = count.assign_add(1)
        tf.py_function(nap, [now], [])
        kernel.assign_add(tf.ones_like(kernel) * 0.01)
        mark = tf.constant(MARK)
        return {"loss": mark, "accuracy": mark}

    return trainerd.Job(
        train_step,
        state={"kernel": kernel, "count": count},
        evaluate=lambda: {"accuracy": MARK},
        summaries=lambda: tf.summary.scalar("own", MARK),
    )
"""
CONFIG = """
entry = "markjob:job"
logdir = "the run's “ö” folder"
max_steps = 300
[checkpoint]
save_model_secs = 0
save_model_steps = 50
[summary]
save_summaries_secs = 0.1
metrics_secs = 0
metrics_steps = 10
[evaluate]
evaluate_secs = 0
evaluate_steps = 35
"""
# Where each process but the last two dies; the checkpoint it leaves is that of the last multiple of 50. The second dies
# before it has made a checkpoint of its own.
DEATHS = (145, 148)
TAGS = ("loss", "accuracy", "val_accuracy", "own", "global_step/sec")


@dataclass
class Run:
    """The run after its end: who trained what, and the boards that were open all the time or were opened then."""

    logdir: Path
    began: list[int]  # the step after which each process began
    paused_at: int
    boards: dict[str, Board]

    def owner(self, step: int) -> int:
        """The number of the process whose figures of a step count: the last that has run it."""
        return max(number for number, start in enumerate(self.began) if start < step)


Train = Callable[..., Trainer]


def run_and_die(train: Train, mark: int, die_at: int) -> int:
    """Train until the process kills itself; the step of the checkpoint that it leaves."""
    process = train(mark, die_at)
    assert process.end() == -signal.SIGKILL, process.text
    return die_at // 50 * 50


def run_and_pause(train: Train, mark: int, after: int) -> int:
    """Train past a step, pause with SIGTERM; the step of the pause."""
    process = train(mark)
    rundir = process.rundir
    wait_for(lambda: rundir.manifest(after).exists() or not process.is_alive(), f"the checkpoint of step {after}")
    assert process.pause() == 0, process.text
    step = rundir.steps()[0]
    assert manifest.read(rundir.manifest(step)).reason == "pause"
    return step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> Iterator[Run]:
    """A run of several processes: some are killed, one is paused, the last one finishes."""
    folder = tmp_path_factory.mktemp("events")
    (folder / "markjob.py").write_text(JOB)
    (folder / "trainerd.toml").write_text(CONFIG)
    logdir = folder / "the run's “ö” folder"
    with ExitStack() as stack:

        def open_board(name: str, *more: str) -> Board:
            return stack.enter_context(serving(logdir, folder / f"{name}.out", *more))

        def train(mark: int, die_at: int = 0) -> Trainer:
            env = {"MARK": str(mark), "DIE_AT": str(die_at)}
            return forkserver.start(folder, logdir, run=["run"], env=env)

        # A person looks at the run all the time, and another one only afterwards.
        boards = {f"{name}, live": open_board(f"live-{name}", more) for name, more in LOADERS.items()}
        began = [0]
        for mark, die_at in enumerate(DEATHS):
            began.append(run_and_die(train, mark, die_at))
        paused_at = run_and_pause(train, len(DEATHS), 150)
        began.append(paused_at)
        last = train(len(DEATHS) + 1)
        assert last.end() == 0 and "max_steps = 300 is reached" in last.text, last.text
        boards |= {name: open_board(name, more) for name, more in LOADERS.items()}
        for board in boards.values():
            board.wait_for_step("loss", 300)
        yield Run(logdir, began, paused_at, boards)


pytestmark = pytest.mark.long  # test_event_writer.py tries both loaders with a writer alone

BOARDS = ("fast", "slow", "fast, live", "slow, live")


@pytest.mark.parametrize("board", BOARDS)
def test_no_curve_overlaps_itself_and_each_point_is_of_the_process_whose_steps_count(run: Run, board: str) -> None:
    curves = run.boards[board].scalars()
    assert set(TAGS) <= set(curves)
    for tag, points in curves.items():
        steps = [step for step, _ in points]
        assert all(a < b for a, b in itertools.pairwise(steps)), f"{tag} goes back: {steps}"
        if tag != "global_step/sec":
            assert points == [(step, float(run.owner(step))) for step in steps], tag


@pytest.mark.parametrize("board", BOARDS)
def test_points_by_steps_fall_on_exactly_those_steps(run: Run, board: str) -> None:
    """And there is one for every such step. A pause and the end add a point of their own."""
    steps = [step for step, _ in run.boards[board].points("loss")]
    assert steps == sorted({*range(10, 301, 10), run.paused_at})


@pytest.mark.parametrize("board", BOARDS)
def test_histograms_kernels_and_the_graph_are_there(run: Run, board: str) -> None:
    served = run.boards[board]
    for kind, tag in (("histograms", "weights/kernel"), ("images", "kernels/kernel")):
        assert tag in served.get(f"{kind}/tags")["."]
        steps = served.steps_of(kind, tag)
        assert steps and all(a < b for a, b in itertools.pairwise(steps)), steps
        assert steps[-1] == 300
    blob = served.get("images/images", tag="kernels/kernel", run=".", sample=0)[-1]["query"]
    picture = tf.io.decode_png(served.fetch("images/individualImage", **dict(urllib.parse.parse_qsl(blob))))
    assert picture.shape == (7, 11, 1)  # six kernels of 3×3 with a pixel between: three columns, two rows
    assert served.get("graphs/info")["."]["run_graph"]
    graph = served.fetch("graphs/graph", run=".", conceptual="false").decode()
    assert "AssignAddVariableOp" in graph and "EagerPyFunc" in graph


def test_there_is_one_event_file_for_each_process(run: Run) -> None:
    assert len(list(run.logdir.glob("events.out.tfevents.*"))) == len(DEATHS) + 2
