"""Bad input and bad luck: each a clear message, the right exit code, nothing lost."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cases import every
from tests.process.conftest import Start, write_config
from tests.process.trainers import first_steps, saved
from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase


@pytest.mark.parametrize(
    ("entry", "code", "parts"),
    [
        ("jobs:nothing", 69, ["has no 'nothing'"]),
        ("nowhere:job", 69, ["there is no module 'nowhere'"]),
        ("jobs:HERE", 69, ["a job is needed: a trainerd.Job, GraphJob, KerasJob or Experiment"]),
        ("jobs:raises_in_trace", 69, ["does not trace", "no such layer", "in my_own_train_step"]),
        ("jobs:generator_input", 69, ["position cannot be saved", 'input_position = "restart"']),
    ],
)
def test_a_job_that_cannot_be_had(start: Start, project: Path, entry: str, code: int, parts: list[str]) -> None:
    write_config(project, entry=entry)
    run = start("run")
    assert run.end() == code, run.text
    for part in parts:
        assert part in run.text
    assert "FailedPreconditionError" not in run.text
    assert "trainerd/sessions" not in run.text and "site-packages" not in run.text
    assert run.state.phase is Phase.FAILED and run.state.exit_code == code and run.state.error
    assert saved(run.rundir) == []


def test_an_input_that_cannot_be_saved_may_be_restarted_knowingly(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:generator_input", more='input_position = "restart"\nmax_steps = 20\n')
    assert start("run").end() == 0
    again = start("run", "--max-steps", "30")
    assert again.end() == 0, again.text
    assert saved(again.rundir) == [30, 20] and first_steps(again.text) == [21]


@pytest.mark.parametrize(
    ("entry", "steps", "parts"),
    [
        pytest.param(
            "raises_in_step",
            [20, 10],
            ["the job failed in step 30", "p is too large", "in my_own_train_step"],
            marks=pytest.mark.long,
        ),
        ("raises_in_input", [29, 20, 10], ["failed to give the batch of step 30", "bad record"]),
        pytest.param(
            "nan", [20, 10], ["the loss became nan in step 30", "resumes from step 20"], marks=pytest.mark.long
        ),
        ("nan_weights", [20, 10], ["the variable 'p' holds a NaN after step 30", "resumes from step 20"]),
    ],
)
def test_a_job_that_fails_while_it_trains(
    start: Start, project: Path, entry: str, steps: list[int], parts: list[str]
) -> None:
    write_config(project, entry=f"jobs:{entry}", more="[checkpoint]\nsave_model_steps = 10\n")
    run = start("run")
    assert run.end() == 70, run.text
    for part in parts:
        assert part in run.text
    assert "site-packages" not in run.text and "trainerd/sessions" not in run.text
    assert saved(run.rundir) == steps
    again = start("run")
    assert again.end() == 70
    assert first_steps(again.text) in ([steps[0] + 1], [])


@pytest.mark.long
def test_twenty_starts_at_once_and_one_wins(start: Start, project: Path) -> None:
    write_config(project)
    runs = [start("run") for _ in range(20)]
    wait_for(lambda: sum(run.is_alive() for run in runs) == 1, "19 of 20 to give up")
    (winner,) = [run for run in runs if run.is_alive()]
    for run in runs:
        if run is not winner:
            assert run.end() == 75
            assert "trains in" in run.text
    winner.until_training()
    assert winner.pause() == 0


def test_a_stale_lock_file_of_a_pid_that_another_process_has_now(start: Start, project: Path) -> None:
    write_config(project)
    rundir = RunDirectory(project / "run")
    rundir.create()
    with subprocess.Popen(["sleep", "60"]) as other:
        rundir.lock.write_text(f'{{"pid": {other.pid}, "create_time": 1.0, "uptime_at_start": 1.0}}\n')
        status = start("status")
        assert status.end() == 69
        pause = start("pause", "--wait")
        assert pause.end() == 0 and "nothing to pause" in pause.text
        run = start("run")
        run.until_training()
        assert run.pause() == 0
        assert other.poll() is None
        other.kill()


def test_a_second_sigterm_exits_at_once_without_a_save(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:slow_step")
    run = start("run")
    run.until_training(step=5)
    (project / "hang").touch()
    wait_for((project / "go.waiting").exists, "the step to hang")
    run.signal(signal.SIGTERM)
    run.until_printed("pausing at the next step: SIGTERM")

    def ends() -> bool:
        if run.is_alive():  # until half a second has passed they count as the first
            run.signal(signal.SIGTERM)
        return not run.is_alive()

    wait_for(ends, "the end at the second")
    assert run.end() == -signal.SIGTERM
    assert "exiting now, without a save" in run.text
    assert saved(run.rundir) == []


def test_timeout_with_a_terminals_signal_is_one_stop(start: Start, project: Path) -> None:
    """timeout(1) signals its child and then the child's group."""
    write_config(project)
    run = start("run")
    run.until_training(step=5)
    for _ in range(2):
        run.signal(signal.SIGINT)
    assert run.end() == 0
    assert len(saved(run.rundir)) == 1


def test_sigterm_during_a_long_step_saves_when_it_is_done(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:slow_step")
    run = start("run")
    run.until_training(step=5)
    (project / "hang").touch()
    wait_for((project / "go.waiting").exists, "the step to hang")
    run.signal(signal.SIGTERM)
    run.until_printed("pausing at the next step")
    (project / "go").touch()
    assert run.end() == 0
    assert saved(run.rundir) == [run.state.step]


def test_sigterm_during_the_first_compilation(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:slow_compile")
    run = start("run")
    wait_for((project / "go.waiting").exists, "the tracing")
    run.signal(signal.SIGTERM)
    run.until_printed("pausing at the next step")
    (project / "go").touch()
    assert run.end() == 0, run.text
    assert "nothing had changed" in run.text and saved(run.rundir) == []
    assert run.state.phase is Phase.PAUSED


def test_sigterm_during_a_save_and_during_a_restore(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:slow_save")
    run = start("run")
    run.until_training()
    (project / "slow-save").touch()
    run.signal(signal.SIGUSR1)
    wait_for((project / "save-go.waiting").exists, "the save")
    during = run.until(lambda s: s.saving is not None, "the save")
    run.until(lambda s: s.step > during.step and s.phase is Phase.TRAINING, "training to go on meanwhile")
    run.signal(signal.SIGTERM)
    run.until_printed("pausing at the next step")
    (project / "save-go").touch()
    assert run.end() == 0
    step, asked_for = saved(run.rundir)
    assert asked_for < step == run.state.step

    (project / "slow-restore").touch()
    again = start("run")
    wait_for((project / "restore-go.waiting").exists, "the restore")
    again.signal(signal.SIGTERM)
    again.until_printed("pausing at the next step")
    (project / "restore-go").touch()
    assert again.end() == 0
    assert saved(run.rundir)[0] == step
    assert again.state.step == step and again.state.phase is Phase.PAUSED


def test_a_kill_during_a_save_leaves_the_one_before(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:slow_save")
    run = start("run")
    run.until_training()
    run.signal(signal.SIGUSR1)
    run.until(lambda s: s.last_checkpoint is not None, "a checkpoint")
    (project / "slow-save").touch()
    run.signal(signal.SIGUSR1)
    wait_for((project / "save-go.waiting").exists, "the save")
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    (project / "slow-save").unlink()
    before = saved(run.rundir)
    again = start("run")
    again.until_training()
    assert first_steps(again.text) == [before[0] + 1]
    assert not run.rundir.stagings()
    assert again.pause() == 0


def test_a_run_directory_that_is_read_only(start: Start, project: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    write_config(project, logdir=str(small_disk))
    run = start("run", rundir=small_disk)
    assert run.end() == 74
    assert "read-only" in run.text.lower() and "another `logdir`" in run.text
    write_config(project, logdir=str(small_disk / "inside"))
    run = start("run", rundir=small_disk / "inside")
    assert run.end() == 74


def test_damaged_checkpoints_are_never_started_over(start: Start, project: Path) -> None:
    write_config(project, more="max_steps = 10\n")
    assert start("run").end() == 0
    data = project / "run" / "model.ckpt-10.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    run = start("run", "--max-steps", "20")
    assert run.end() == 65, run.text
    assert "none of the 1 checkpoints" in run.text and "XXH3" in run.text
    assert data.exists()


def test_a_model_that_changed_is_no_damage(start: Start, project: Path) -> None:
    write_config(project, more="max_steps = 10\n")
    assert start("run").end() == 0
    write_config(project, entry="jobs:exact", more="max_steps = 20\n")
    run = start("run", "--accept-job")
    assert run.end() == 65, run.text
    assert "does not fit the job" in run.text
    assert saved(run.rundir) == [10]


@pytest.mark.parametrize("how", every(2, ["file", "--accept-changes"]))
def test_another_batch_size_behind_a_saved_position_is_refused_unless_accepted(
    start: Start, project: Path, how: str
) -> None:
    write_config(project, entry="jobs:reads_fours")
    assert start("run", "--max-steps", "10").end() == 0
    write_config(project, entry="jobs:reads_eights")
    other = start("run", "--max-steps", "20", "--accept-changes")
    assert (
        other.end() == 65 and "holds the run of the job jobs:reads_fours" in other.text and "--accept-job" in other.text
    )
    refused = start("run", "--max-steps", "20", "--accept-job")
    assert refused.end() == 65
    assert re.search(r"the dataset has changed since step \d+: batch_size 4 → 8\n", refused.text), refused.text
    assert "--accept-changes" in refused.text and saved(refused.rundir) == [10]
    if how == "file":
        refused.rundir.accept_changes.touch()
        refused.rundir.accept_job.touch()
    accepted = start("run", "--max-steps", "20", *([how, "--accept-job"] if how != "file" else []))
    assert accepted.end() == 0, accepted.text
    assert first_steps(accepted.text) == [11] and "changed since step 10: config.entry" in accepted.text
    assert not accepted.rundir.accept_changes.exists() and not accepted.rundir.accept_job.exists()
    assert start("run", "--max-steps", "30").end() == 0


@pytest.mark.long
def test_a_job_that_fails_at_the_same_step_again_and_again_is_not_started_for_ever(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:raises_in_step", more="[checkpoint]\nsave_model_steps = 2\n")
    for times in range(1, 11):
        run = start("run")
        assert run.end() == (70 if times < 10 else 65), run.text
        failure, error = run.state.failure, run.state.error
        assert failure is not None and error is not None and "\n" not in error
        assert (failure.step, failure.phase, failure.times) == (30, "training", times)
        cause = "the job failed in step 30: InvalidArgumentError: assertion failed: [p is too large]"
        assert error.startswith(cause) and cause in run.text and "my_own_train_step" in run.text
        assert (f"failed {times} times at step 30" in error) == (times > 1)
    assert "Fix the job or its data, or go back to an older checkpoint" in run.text
    status = start("status")
    assert status.end() == 0 and "failed 10 times at step 30, while training" in status.text


def test_a_run_whose_directory_is_moved_in_flight_ends_and_resumes_there(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:exact", more="[checkpoint]\nsave_model_secs = 0.2\n")
    run = start("run")
    run.until_printed(r"saved step \d+ \(schedule\)")
    curves = run.rundir.path  # its writer begins on a thread of its own
    wait_for(lambda: any(curves.glob("events.out.tfevents.*")), "an event file, which TensorFlow makes with its folder")
    moved = RunDirectory(project / "moved")
    run.rundir.path.rename(moved.path)
    assert run.end() == 74 and f"was moved to {moved.path}" in run.text, run.text
    assert not run.rundir.path.exists(), "nothing is made where it was"
    assert "was moved to" in moved.log.read_text() and "event files cannot be written" not in run.text
    again = start("run", "--logdir", "moved", "--max-steps", "1", rundir=moved.path)
    assert again.end() == 0 and saved(moved), again.text


def test_a_run_directory_that_is_removed_in_flight_is_reported(start: Start, project: Path) -> None:
    write_config(project, entry="jobs:exact")
    run = start("run")
    run.until_training(step=10)

    def remove() -> bool:  # what the process writes meanwhile may come between
        shutil.rmtree(run.rundir.path, ignore_errors=True)
        return not run.rundir.path.exists()

    wait_for(remove, "the removal of the run directory")
    run.until_printed("was removed while a process trains in it: nothing can be saved")
    status = start("status")
    assert status.end() == 0 and "was removed while" in status.text and f"pid {run.pid}" in status.text
    assert run.pause() == 74 and "Create it again" in run.text
