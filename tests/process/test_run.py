"""A run in the foreground: signals, files, and going on at the very next step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import first_steps, saved
from tests.waiting import wait_for
from trainerd.checkpoints import manifest
from trainerd.rundir import run_events
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state


def test_it_trains_to_its_end_and_says_what_is_next(start: Start, project: Path) -> None:
    write_config(project, more="max_steps = 5000\n")
    run = start("run")
    assert run.end() == 0
    assert saved(run.rundir) == [5000]
    assert manifest.read(run.rundir.manifest(5000)).metrics == {"p": 10000.0}
    assert "Finished: max_steps = 5000 is reached." in run.text
    assert "--max-steps 10000" in run.text and "--forever" in run.text
    assert run.state.phase is Phase.FINISHED and run.state.step == 5000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_pauses_and_the_next_run_resumes_at_the_next_step(start: Start, project: Path, number: int) -> None:
    write_config(project)
    first = start("run")
    first.until_training(step=1000)
    first.signal(number)
    assert first.end() == 0
    (step,) = saved(first.rundir)
    assert first.state.phase is Phase.PAUSED and first.state.step == step
    assert manifest.read(first.rundir.manifest(step)).reason == "pause"
    second = start("run", "--max-steps", str(step + 10))
    assert second.end() == 0
    assert first_steps(second.text) == [step + 1]
    assert manifest.read(first.rundir.manifest(step + 10)).metrics["p"] == 2.0 * (step + 10)


def test_sigusr1_saves_and_training_continues(start: Start, project: Path) -> None:
    write_config(project)
    run = start("run")
    run.until_training()
    run.signal(signal.SIGUSR1)
    at = run.until(lambda s: s.last_checkpoint is not None, "a checkpoint").last_checkpoint
    assert at is not None and at.reason == "request"
    run.until(lambda s: s.step > at.step, "a later step")
    assert at.step in saved(run.rundir)
    assert run.pause() == 0


def test_a_job_that_handles_signals_itself_is_reported_and_paused_all_the_same(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:deaf", more="[checkpoint]\nsave_model_secs = 0\n")
    run = start("run")
    run.until_training(step=5)
    run.signal(signal.SIGUSR1)
    run.until_printed(r"saved step \d+ \(request\)")
    assert run.pause() == 0
    assert "the job replaced trainerd's signal handlers for SIGTERM, SIGUSR1. trainerd has set" in run.text


def test_the_files_do_what_the_signals_do(start: Start, project: Path) -> None:
    write_config(project)
    run = start("run")
    run.until_training()
    run.rundir.save.touch()
    run.until(lambda s: s.last_checkpoint is not None, "a checkpoint")
    wait_for(lambda: not run.rundir.save.exists(), "the save file to be consumed")
    run.rundir.pause.touch()
    assert run.end() == 0
    assert not run.rundir.pause.exists()
    assert len(saved(run.rundir)) == 2


def test_a_pause_file_from_before_the_start_is_removed_and_reported(start: Start, project: Path) -> None:
    write_config(project)
    (project / "run").mkdir()
    (project / "run" / "pause").touch()
    run = start("run")
    run.until_training()
    assert "removed a pause file from before this start" in run.text
    assert run.pause() == 0


def test_sigusr2_shows_every_threads_stack(start: Start, project: Path) -> None:
    write_config(project)
    run = start("run")
    run.until_training()
    run.signal(signal.SIGUSR2)
    run.until_printed(r"every thread's stack:[\s\S]*in _load_and_train")
    assert run.pause() == 0


def test_sighup_reads_the_config_again(start: Start, project: Path) -> None:
    write_config(project)
    run = start("run")
    run.until_training()
    write_config(project, more="[checkpoint]\nsave_model_secs = 0.3\nkeep_last = 2\n")
    run.signal(signal.SIGHUP)
    run.until_printed("the configuration was read again")
    wait_for(lambda: len(saved_loosely(run.rundir.path)) >= 2, "two checkpoints on the new schedule")
    write_config(project, entry="jobs:other", more="[checkpoint]\nsave_model_secs = 0\nkeep_last = 2\n")
    run.signal(signal.SIGHUP)
    run.until_printed("`entry` has changed in the config, which takes effect at the next start")
    write_config(project, more="keep_lst = 2\n")
    run.signal(signal.SIGHUP)
    run.until_printed("the configuration was not read again")
    assert run.pause() == 0
    assert len(saved(run.rundir)) <= 2


def test_a_parameter_is_set_for_one_start_and_survives_a_reload(start: Start, project: Path) -> None:
    write_config(project, more="[params]\nby = 4.0\n")
    first = start("run", "--set", "params.by=0.5", "--set", "checkpoint.keep_last=9")
    assert first.until_training(step=100).params == {"by": 0.5}
    first.signal(signal.SIGHUP)
    first.until_printed("the configuration was read again")
    assert first.pause() == 0
    (step,) = saved(first.rundir)
    found = manifest.read(first.rundir.manifest(step))
    assert found.metrics == {"p": step / 2} and found.fingerprint["config.checkpoint.keep_last"] == "9"
    assert "`params` has changed" not in first.text and "--set params.by=0.5 --set checkpoint" in first.text
    second = start("run", "--max-steps", str(step + 10))
    assert second.end() == 0 and "config.params.by: 0.5 → 4.0" in second.text
    assert second.state.metrics["p"] == step / 2 + 40
    third = start("run", "--set", "params.bi=1.0", "--forever")
    assert third.end() == 69
    assert "entry = 'jobs:counter': [params] has 'bi', and the function has no such argument. Did you" in third.text


def saved_loosely(path: Path) -> list[Path]:
    """The manifests there are, while checkpoints come and go."""
    return list(path.glob("model.ckpt-*.json"))


def test_ten_thousand_signals_are_survived_and_the_last_save_is_after_the_last_of_them(
    start: Start, project: Path
) -> None:
    write_config(project)
    run = start("run")
    run.until_training()
    for i in range(10_000):
        run.signal((signal.SIGUSR1, signal.SIGHUP)[i % 2])
    step = run.state.step
    run.signal(signal.SIGUSR1)
    last = run.until(
        lambda s: s.last_checkpoint is not None and s.last_checkpoint.step >= step, "a save after the last signal"
    )
    run.until(lambda s: s.step > last.step, "training to go on")
    assert run.pause() == 0


def test_odd_names_are_no_trouble(start: Start, tmp_path: Path) -> None:
    for name in ["with space", 'quote\'s "x"', "ünï-日本", "a#b%20&;$(c)"]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "my.toml").write_text(
            'entry = "trainerd.examples.counter:job"\nlogdir = "r ü"\nmax_steps = 10\n', encoding="utf-8"
        )
        run = start("run", "--config", str(folder / "my.toml"), rundir=folder / "r ü")
        assert run.end() == 0, run.text
        assert saved(run.rundir) == [10]


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[b]", "a\\b"])
def test_a_name_that_tensorflow_takes_for_a_pattern_is_refused(start: Start, project: Path, name: str) -> None:
    run = start("run", "--logdir", name, rundir=project / name)
    assert run.end() == 78
    assert "TensorFlow reads" in run.text and not (project / name).exists()


def test_a_run_with_no_metrics_and_no_checkpoints_on_a_clock(start: Start, project: Path) -> None:
    (project / "quiet.py").write_text(
        "import tensorflow as tf, trainerd\n"
        "def job():\n    p = tf.Variable(0.0)\n    def step():\n        p.assign_add(1.0)\n"
        "    return trainerd.Job(step, state={'p': p})\n"
    )
    write_config(project, entry="quiet:job", more="max_steps = 1000\n[checkpoint]\nsave_model_secs = 0\n")
    run = start("run")
    assert run.end() == 0, run.text
    assert saved(run.rundir) == [1000]


def test_status_is_right_while_it_runs_and_after(start: Start, project: Path) -> None:
    write_config(project, more="max_steps = 1000000000\n")
    run = start("run")
    state = run.until(lambda s: bool(s.steps_per_sec), "a rate")
    assert state.steps_per_sec and state.steps_per_sec > 1000
    assert state.memory_bytes > 50e6 and state.max_steps == 10**9 and state.eta_secs
    assert read_holder(run.rundir) is not None
    assert run.pause() == 0
    after = read_state(run.rundir.state)
    assert after is not None and after.phase is Phase.PAUSED and read_holder(run.rundir) is None


def test_a_job_with_processes_of_its_own_is_paused_like_any_other(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:workers")
    run = start("run")
    run.until_training()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: every process of the group
    assert run.end() == 0, run.text
    assert "second" not in run.text and saved(run.rundir) == [run.state.step]


IMPATIENT = "import trainerd.system.exit as ending; from trainerd.cli import main; ending.PATIENCE_SECS = 2; main()"


@pytest.mark.long
@pytest.mark.parametrize("command", ["run", "start"])
def test_what_a_job_leaves_running_does_not_keep_the_process_from_ending(project: Path, command: str) -> None:
    write_config(project, entry="jobs:lingering")
    words = [sys.executable, "-c", IMPATIENT, command, "--max-steps", "100"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if command == "run":
        assert "trainerd: the job has left my-thread, my-process running: the process ends without" in done.stderr
    rundir = RunDirectory(project / "run")
    state = wait_for(lambda: read_state(rundir.state), "its state")
    wait_for(lambda: not psutil.pid_exists(state.pid or 0), "its end")
    assert (project / "farewell").exists() and (project / "goodbye").exists() and saved(rundir) == [100]


def test_children_that_an_evaluation_forks_end_by_themselves(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:forking", more="max_steps = 300\n[evaluate]\nevaluate_steps = 100\n")
    run = start("run")
    assert run.end() == 0, run.text
    assert "ZeroDivisionError" in run.text and "an error of trainerd's own" not in run.text
    metrics = manifest.read(run.rundir.manifest(300)).metrics
    assert [metrics[f"val_child_{number}"] for number in range(5)] == [3, 1, 5, 1, 0]


def test_a_failure_is_in_the_log_though_the_job_sets_up_logging(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:logging_itself")
    run = start("run")
    assert run.end() == 70
    log = run.rundir.log.read_text()
    assert "my_own_train_step" in log and "p is too large" in log and log == run.text


def test_a_kill_leaves_the_run_directory_free_though_the_jobs_own_processes_live(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:workers")
    run = start("run")
    run.until_training()
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    again = start("run")
    again.until_training()
    assert again.pause() == 0


@pytest.mark.long
@pytest.mark.parametrize("entry", ["jobs:counter", "jobs:steps_program"])
def test_the_steps_that_are_trained_again_are_those_of_the_kills(start: Start, project: Path, entry: str) -> None:
    write_config(project, entry=entry, more="max_steps = 1000000000\n")
    known = expected = resumed = 0
    for kills in range(4):
        run = start("run")
        begun = run.until_training(resumed + 1)
        if kills == 1:
            run.rundir.save.touch()
            run.until(lambda s: s.last_checkpoint is not None, "a checkpoint")
        run.until_training(max(known, begun.step) + 10)
        run.signal(signal.SIGKILL)
        assert run.end() == -signal.SIGKILL
        left = read_state(run.rundir.state)
        assert left is not None
        expected += max(0, min(left.step, known) - resumed)
        assert left.goodput.steps_again == expected
        known, resumed = max(known, left.step), left.last_checkpoint.step if left.last_checkpoint else 0
    assert expected > 0 and resumed > 0
    resumes = [event for event in run_events.read(run.rundir) if event.kind is run_events.EventKind.RESUME]
    assert resumes and all("to train again: " in event.said for event in resumes)


CONFIGURES = """
import jobs
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_visible_devices([cpu], "CPU")
tf.config.threading.set_inter_op_parallelism_threads(2)


def configured(make):
    def job():
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        assert len(tf.config.list_logical_devices("CPU")) == 2
        print("has two devices")
        return make()

    return job


function, keras, graph = configured(jobs.evaluated_often), configured(jobs.released), configured(jobs.graph)
"""


@pytest.mark.parametrize(
    ("entry", "commands"),
    [
        pytest.param("function", [["run", "--max-steps", "3"], ["evaluate"]], marks=pytest.mark.long),
        ("keras", [["check"]]),
        ("graph", [["run", "--max-steps", "3"]]),
        pytest.param("function", [["check"]], marks=pytest.mark.long),
        pytest.param(
            "keras", [["run", "--max-steps", "3"], ["export", "release", "--format", "keras"]], marks=pytest.mark.long
        ),
        pytest.param("graph", [["check"]], marks=pytest.mark.long),
    ],
)
def test_job_configures_devices_and_threads(start: Start, project: Path, entry: str, commands: list[list[str]]) -> None:
    (project / "devices.py").write_text(CONFIGURES)
    write_config(project, entry=f"devices:{entry}", more="" if entry == "graph" else "seed = 1\ndeterministic = true\n")
    for command in commands:
        trainer = start(*command)
        assert trainer.end() == 0, trainer.text
        assert "has two devices" in trainer.text


def test_job_that_takes_an_argument_is_an_error(start: Start, project: Path) -> None:
    """It is called with the Supervisor. If it opens no session, it is not a program that writes its own loop."""
    (project / "mine.py").write_text("import jobs\n\ndef job(x):\n    return jobs.counter()\n")
    write_config(project, entry="mine:job")
    trainer = start("run")
    assert trainer.end() == 69, trainer.text
    assert "the function takes `x`. A function that returns a job takes no arguments, or any of" in trainer.text
