"""Two and three workers: paused, killed, resumed, and the same as if nothing had happened."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import Cluster, figures
from tests.process.conftest import Start
from tests.process.trainers import saved
from tests.waiting import DEADLINE_SECS, wait_for
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

# A job, its steps, its workers, and the one that is killed.
RUNS = [("shared", 1000, 3, 2), ("own", 1500, 2, 1), ("ahead", 1500, 2, 0), ("keras_model", 400, 2, 1)]


@pytest.mark.parametrize(("entry", "steps", "count", "victim"), RUNS)
def test_workers_that_are_paused_and_killed_end_as_those_that_were_not(
    cluster: Cluster, entry: str, steps: int, count: int, victim: int
) -> None:
    keys = f"seed = 7\nmax_steps = {steps}\n[checkpoint]\nsave_model_steps = {steps // 20 + 1}\nkeep_last = 99"
    cluster.configure(entry, count, keys)
    cluster.start(count, logdir="whole")
    assert cluster.end() == [0] * count, cluster.text

    cluster.start(count)
    cluster.until_training(steps // 20)
    cluster.workers[1].signal(signal.SIGTERM)
    assert cluster.end() == [0] * count, cluster.text
    rundir = RunDirectory(cluster.project / "run")
    [paused, *_] = saved(rundir)
    found = manifest.read(rundir.manifest(paused))
    assert found.reason in ("pause", "schedule") and found.fingerprint["cluster.workers"] == str(count)
    whose = "one for each worker" if entry in ("own", "ahead") else "one for all"
    assert found.fingerprint["cluster.positions"] == whose

    cluster.start(count)
    before = cluster.workers[0].until_training().step
    cluster.until_training(before + 3)
    cluster.workers[victim].signal(signal.SIGKILL)
    began = time.monotonic()
    codes = [76] * count
    codes[victim] = -signal.SIGKILL
    assert cluster.end() == codes, cluster.text
    assert time.monotonic() - began < 5
    cluster.start(count)
    assert cluster.end() == [0] * count, cluster.text
    assert cluster.values(steps) == cluster.values(steps, "whole")


STOPPED = """
import os
import signal

import tensorflow as tf
from jobs import shared

make = tf.distribute.MultiWorkerMirroredStrategy


def stopped(resolver):
    strategy = make(resolver)
    if resolver.task_id == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return strategy


tf.distribute.MultiWorkerMirroredStrategy = stopped
"""


def test_a_sigterm_while_the_cluster_is_formed_pauses_all(cluster: Cluster) -> None:
    """TensorFlow's own handler takes it then."""
    config = cluster.configure("shared", 2)
    (cluster.project / "stopped.py").write_text(STOPPED)
    config.write_text(config.read_text().replace("jobs:shared", "stopped:shared"))
    cluster.start(2)
    assert cluster.end() == [0, 0], cluster.text
    assert cluster.workers[0].state.phase is Phase.PAUSED and "a worker received SIGTERM" in cluster.text


def test_what_a_worker_is_asked_for_is_done_by_all(cluster: Cluster, start: Start) -> None:
    cluster.configure("shared", 2)
    chief, worker = cluster.start(2)
    cluster.until_training(20)
    worker.signal(signal.SIGUSR1)
    chief.until_printed(r"saved step \d+ \(request\)")
    (worker.rundir.path / "save").touch()
    wait_for(lambda: chief.text.count("(request)") == 2, lambda: cluster.text)
    state = chief.until(lambda s: [each.rank for each in s.workers] == [1], "the other worker")
    assert state.workers[0].pid == worker.pid and state.workers[0].step > 0
    status = start("status")
    assert status.end() == 0 and f"pid {worker.pid}: step" in status.text and "worker 1" in status.text
    shown = worker.until(lambda s: s.phase is Phase.TRAINING and s.last_checkpoint is not None, "the chief's state")
    assert shown.last_checkpoint is not None and Path(shown.last_checkpoint.path).parent == chief.rundir.path
    assert "[0] saved step" in chief.rundir.log.read_text() and "[1] " in worker.rundir.log.read_text()
    (worker.rundir.path / "set").write_text("learning_rate=0.001\n")
    chief.until_printed("learning_rate")
    chief.signal(signal.SIGUSR1)
    began = time.monotonic()
    for each in cluster.workers:  # as systemd and Slurm do it
        each.signal(signal.SIGTERM)
    assert cluster.end() == [0, 0], cluster.text
    assert time.monotonic() - began < 5
    assert manifest.read(chief.rundir.manifest(saved(chief.rundir)[0])).reason in ("pause", "set", "request")


def test_commands_find_a_worker_where_the_chief_is_not(cluster: Cluster, start: Start, project: Path) -> None:
    """The run directory of another machine, which does not share the chief's: checkpoints come over the network."""
    cluster.configure("shared", 2, "")
    chief, worker = cluster.workers = [cluster.start_one(0), cluster.start_one(1, logdir="elsewhere")]
    chief.until_training(30)
    save = start("save", "--wait", "--logdir", "elsewhere")
    assert save.end() == 0 and "saved step" in save.text, save.text
    status = start("status", "--logdir", "elsewhere")
    assert status.end() == 0 and f"training (pid {worker.pid})" in status.text
    pause = start("pause", "--wait", "--logdir", "elsewhere")
    assert pause.end() == 0, pause.text
    assert cluster.end() == [0, 0], cluster.text
    assert "1 of them do not share the run directory" in chief.text
    last = saved(chief.rundir)[0] + 100
    cluster.configure("shared", 2, f"max_steps = {last}\n")
    cluster.workers = [cluster.start_one(0), cluster.start_one(1, logdir="elsewhere")]
    assert cluster.end() == [0, 0], cluster.text
    cluster.start(2, logdir="whole")
    assert cluster.end() == [0, 0], cluster.text
    assert cluster.values(last) == cluster.values(last, "whole")
    assert saved(RunDirectory(project / "elsewhere")) == []


def test_callbacks_that_write_files_keep_the_workers_in_step(cluster: Cluster, project: Path) -> None:
    """They are the chief's, and are called around each batch; the other stops the training, on all."""
    cluster.configure("keras_files", 2, "seed = 1\n")
    for _ in range(2):
        cluster.start(2)
        assert cluster.end() == [0, 0], cluster.text
        assert "a callback stopped the training in epoch 2" in cluster.text
    rows = (project / "epochs.csv").read_text().splitlines()
    assert len(rows) == 1 + 2, "each epoch once, by the chief"


def test_another_number_of_workers_sees_the_same_elements(cluster: Cluster, project: Path) -> None:
    steps, more = 0, "[summary]\nmetrics_steps = 1\n"
    for count in (2, 3, 1):
        steps += 40
        cluster.configure("shared", count, f"max_steps = {steps}\n{more}")
        cluster.start(count)
        assert cluster.end() == [0] * count, cluster.text
    cluster.configure("shared", 1, f"max_steps = {steps}\n{more}")
    cluster.start(1, logdir="alone")
    assert cluster.end() == [0], cluster.text
    resized, alone = figures(project / "run"), figures(project / "alone")
    assert resized.steps == alone.steps == list(range(1, steps + 1))
    assert resized.values == pytest.approx(alone.values, rel=1e-6)
    log = (project / "run" / "trainerd.log").read_text()
    assert "weights may differ by rounding" in log


def test_another_number_of_workers_with_data_of_their_own_is_refused(cluster: Cluster) -> None:
    cluster.configure("own", 2, "max_steps = 20\n")
    cluster.start(2)
    assert cluster.end() == [0, 0], cluster.text
    cluster.configure("own", 3, "max_steps = 40\n")
    cluster.start(3)
    assert cluster.end() == [65, 65, 65], cluster.text
    assert "was saved by 2 workers, each of which had an input of its own, and now there are 3" in cluster.text
    cluster.configure("own", 1, "max_steps = 40\n")
    cluster.start(1)
    assert cluster.end() == [65], cluster.text


def test_a_stop_while_the_others_are_awaited_is_served_at_once(cluster: Cluster, project: Path) -> None:
    cluster.configure("shared", 3)
    chief = cluster.start_one(0)
    chief.until_printed(r"waiting for workers 1 \(127.0.0.1:\d+\), 2")
    worker = cluster.start_one(1)
    chief.until_printed("worker 1 .* is there")
    state = chief.until(lambda s: s.phase is Phase.GATHERING and bool(s.warnings), "gathering")
    assert "the cluster is not complete: waiting for worker" in state.warnings[0]
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    chief.until_printed("worker 1 ended before")
    again = cluster.start_one(1)
    wait_for(lambda: chief.text.count("is there") == 2, lambda: chief.text)
    (project / "run" / "pause").touch()
    assert [chief.end(), again.end()] == [0, 0], chief.text + again.text


@pytest.mark.parametrize(
    ("entry", "codes", "said"),
    [
        ("fails_on_one", [70, 70], r"worker 1: the job failed in step 31"),
        ("nan_on_one", [70, 70], r"the loss became nan in step 30"),
        ("unseeded", [69, 69], r"shuffled without a seed"),
        ("ends", [69, 69], r"ends, or its size is unknown"),
        ("counted", [69, 69], r"several workers train a trainerd.Job or KerasJob"),
        ("dies_while_it_is_built", [76, 9], r"worker 1 .* is gone"),
        ("differs", [69, 69], r"Shape mismatch"),
        ("assigns", [70, 70], r"the workers differ at step 1: weight on worker 1"),
    ],
)
def test_what_goes_wrong_on_one_is_reported_on_all(cluster: Cluster, entry: str, codes: list[int], said: str) -> None:
    cluster.configure(entry, 2)
    cluster.start(2)
    assert cluster.end() == codes, cluster.text
    cluster.workers[0].until_printed(said)
    last = read_state(RunDirectory(cluster.project / "run").state)
    assert last is not None and last.phase is Phase.FAILED and last.exit_code == codes[0]


def test_workers_that_are_not_alike_do_not_begin(cluster: Cluster, project: Path) -> None:
    cluster.configure("shared", 2)
    other = project / "other.toml"
    other.write_text((project / "trainerd.toml").read_text().replace("step_secs = 60", "step_secs = 61"))
    chief = cluster.start_one(0)
    worker = cluster.begin(
        "run", "--rank", "1", "-c", "other.toml", rundir=RunDirectory(project / "run").worker(1).path
    )
    assert [chief.end(), worker.end()] == [78, 78]
    for each in (chief, worker):
        assert "config.cluster.step_secs: 60.0 on the chief, 61.0 on worker 1" in each.text, each.text


def test_a_worker_that_hangs_is_noticed(cluster: Cluster) -> None:
    cluster.configure("shared", 2)
    chief, worker = cluster.start(2)
    cluster.until_training(20)
    worker.signal(signal.SIGSTOP)
    assert chief.end(25) == 76, chief.text
    assert "worker 1" in chief.text and "is gone: nothing was heard of it" in chief.text
    worker.signal(signal.SIGCONT)
    assert worker.end() == 76, worker.text


def test_a_worker_that_lives_and_does_not_come_is_noticed(cluster: Cluster) -> None:
    config = cluster.configure("stuck_on_one", 2, 'input_position = "restart"\n')
    config.write_text(config.read_text().replace("step_secs = 60", "step_secs = 4"))
    cluster.start(2)
    assert cluster.end() == [76, 76], cluster.text
    assert "did not come together in step 30 for 4 s" in cluster.text


def test_no_thread_is_left_of_a_step(cluster: Cluster) -> None:
    """Of a collective operation with TensorFlow's own timeout one is, for so long."""
    cluster.configure("shared", 2)
    chief, _ = cluster.start(2)
    cluster.until_training(500)
    before = len(psutil.Process(chief.pid).threads())
    cluster.until_training(chief.state.step + 2000)
    assert len(psutil.Process(chief.pid).threads()) < before + 20
    chief.signal(signal.SIGTERM)
    assert cluster.end() == [0, 0], cluster.text


def test_a_full_disk_at_the_chief_ends_nothing(cluster: Cluster, small_disk: Path) -> None:
    cluster.configure("shared", 2, "[checkpoint]\nsave_model_steps = 50\nkeep_last = 2\n")
    chief, worker = cluster.workers = [cluster.start_one(0, logdir=str(small_disk)), cluster.start_one(1)]
    chief.until_printed("saved step 50")
    filler = small_disk / "filler"
    with filler.open("wb") as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"0" * 65536)
            file.flush()
    chief.until_printed("the last save failed")
    failed = worker.state.step  # as the chief says; its own state.json has no room
    worker.until(lambda state: state.step > failed + 100, "steps without room")
    filler.unlink()
    saves = chief.text.count("saved step")
    wait_for(lambda: chief.text.count("saved step") > saves, lambda: cluster.text)
    worker.signal(signal.SIGTERM)
    assert cluster.end() == [0, 0], cluster.text
    assert saved(chief.rundir)[0] > failed


def test_a_chief_that_is_killed_in_the_midst_of_a_save(cluster: Cluster) -> None:
    """What it had written of that is removed, and the run goes on from the checkpoint before it."""
    cluster.configure("heavy", 2)
    chief, _ = cluster.start(2)
    cluster.until_training(100)
    cluster.workers[1].signal(signal.SIGUSR1)
    chief.until_printed(r"saved step \d+ \(request\)")
    [before, *_] = saved(chief.rundir)
    cluster.workers[1].signal(signal.SIGUSR1)
    while not list(chief.rundir.stagings()):
        assert chief.is_alive(), cluster.text
    chief.signal(signal.SIGKILL)
    assert cluster.end() == [-signal.SIGKILL, 76], cluster.text
    assert list(chief.rundir.stagings()) and saved(chief.rundir)[0] == before
    cluster.configure("heavy", 2, f"max_steps = {before + 100}\n")
    cluster.start(2)
    assert cluster.end() == [0, 0], cluster.text
    assert f"the first step was {before + 1}" in cluster.text and "what an interrupted save left" in cluster.text
    assert saved(chief.rundir)[0] == before + 100 and not list(chief.rundir.stagings())


def test_signals_to_workers_of_different_speed(cluster: Cluster) -> None:
    """A stop while one is still building its job; two signals to two workers at once; and a stop of the slow one."""
    cluster.configure("uneven", 2)
    chief, slow = cluster.start(2)
    wait_for((cluster.project / "builds").exists, lambda: cluster.text)
    chief.signal(signal.SIGTERM)
    assert cluster.end() == [0, 0], cluster.text
    chief, slow = cluster.start(2)
    cluster.until_training(5)
    chief.signal(signal.SIGUSR1)
    slow.signal(signal.SIGTERM)
    assert cluster.end() == [0, 0], cluster.text
    paused = read_state(slow.rundir.state)
    assert paused is not None
    assert saved(chief.rundir)[0] == chief.state.step == paused.step >= 5, cluster.text


def test_the_checkpoints_are_those_of_a_run_on_one_machine(cluster: Cluster, start: Start, project: Path) -> None:
    """Evaluated by the chief while it trains, and afterwards by commands that are no worker; forked and released."""
    cluster.configure("measured", 2, "max_steps = 120\n[evaluate]\nevaluate_steps = 60\n")
    chief, _ = cluster.start(2)
    assert cluster.end() == [0, 0], cluster.text
    [measured] = [manifest.read(chief.rundir.manifest(120)).metrics["val_error"]]
    for command, said in (
        (["evaluate", "120"], f"error {measured:.3f}"[:-1]),
        (["export", "120", "out"], "step 120"),
        (["fork", "120", "other"], "forked step 120"),
        (["diff", "run", "other"], "step 120: equal"),
        (["check"], "one save"),
    ):
        done = start(*command)
        assert done.end() == 0, done.text
        assert said in done.text or command == ["check"], done.text
    assert (project / "out" / "release.json").exists()


def test_it_goes_back_while_it_trains(cluster: Cluster, start: Start) -> None:
    """As the chief's machine asks, and as another worker's does; then it is where one is that never left."""
    cluster.configure("own", 2, "[checkpoint]\nsave_model_steps = 200\nkeep_last = 99\n")
    chief, worker = cluster.start(2)
    cluster.until_training(500)
    back = start("rollback", "400")
    assert back.end() == 0 and "went back to step 400" in back.text, back.text
    cluster.until_training(600)
    (worker.rundir.path / "rollback").write_text("200")
    chief.until_printed("went back to step 200")
    cluster.until_training(300)
    chief.signal(signal.SIGTERM)
    assert cluster.end() == [0, 0], cluster.text
    end = saved(chief.rundir)[0]
    cluster.start(2, "--max-steps", str(end), logdir="whole")
    assert cluster.end() == [0, 0], cluster.text
    assert cluster.values(end) == cluster.values(end, "whole")


def test_a_daemon_that_is_kept_alive_comes_back(cluster: Cluster, start: Start) -> None:
    config = cluster.configure("shared", 2, "[checkpoint]\nsave_model_steps = 100\n")
    for rank in (0, 1):
        done = start("start", "--keep-alive", "--rank", str(rank))
        assert done.end() == 0 and "kept alive in the background" in done.text, done.text
    run = RunDirectory(config.parent / "run")

    def training(besides: int = 0) -> int:
        def look() -> int | None:
            state = read_state(run.state)
            is_it = state is not None and state.phase is Phase.TRAINING and state.pid != besides
            return state.pid if state is not None and is_it else None

        return wait_for(look, "training")

    first = training()
    other = read_state(run.worker(1).state)
    assert other is not None
    os.kill(other.pid, signal.SIGKILL)
    training(besides=first)
    pause = start("pause", "--wait")
    assert pause.end() == 0, pause.text
    paused = read_state(run.state)
    assert paused is not None and paused.phase is Phase.PAUSED


def test_local_workers_are_started_again_and_stop_together(start: Start, project: Path) -> None:
    (project / "trainerd.toml").write_text(
        'entry = "jobs:shared"\nlogdir = "run"\n[checkpoint]\nsave_model_steps = 50\n[cluster]\nheartbeat_secs = 5\n'
    )
    command = start("cluster", "run", "-n", "2")
    rundir = RunDirectory(project / "run")

    def training(step: int, besides: int = 0) -> int:
        def look() -> int | None:
            state = read_state(rundir.state)
            is_it = state is not None and state.phase is Phase.TRAINING and state.step >= step and state.pid != besides
            return state.pid if state is not None and is_it else None

        return wait_for(look, lambda: command.text)

    first = training(60)
    os.kill(first, signal.SIGKILL)
    training(60, besides=first)
    assert "worker 0 restarted" in command.text and "worker 1 restarted" in command.text
    command.signal(signal.SIGINT)
    assert command.end() == 0, command.text
    state = read_state(rundir.state)
    assert state is not None and state.phase is Phase.PAUSED


def test_a_job_of_several_workers_is_proved(cluster: Cluster, start: Start, project: Path) -> None:
    """It begins with a checkpoint that one alone makes. Each worker has two devices."""
    cluster.configure("keras_model", 2, "seed = 1\ndevices = 2\n", module="two_devices")
    prove = start("prove", "--steps", "60", "--interruptions", "2", "--workers", "2")
    assert prove.end(3 * DEADLINE_SECS) == 0, prove.text
    assert prove.text.rstrip().endswith("The same, bit for bit."), prove.text
    assert "paused at step" in prove.text and "killed at step" in prove.text
    assert not (project / "run").exists() and not (project / "cluster.token").exists()


def test_two_workers_of_two_devices_differ_by_rounding_from_one_device(cluster: Cluster, start: Start) -> None:
    config = cluster.configure("steady", 2, "devices = 2", module="two_devices")
    cluster.start(2, logdir="four")
    assert cluster.end() == [0, 0], cluster.text
    config.write_text('entry = "two_devices:steady"\nlogdir = "one"\n')
    alone = start("run")
    assert alone.end() == 0, alone.text
    diff = start("diff", "four", "one")
    assert diff.end() == 1, diff.text
    weights = re.findall(r"_trainable_variables/\d: .* by (\S+) at most", diff.text)
    assert weights and all(float(each) < 1e-6 for each in weights), diff.text
    one, four = (last_metrics(RunDirectory(cluster.project / name)) for name in ("one", "four"))
    assert one == pytest.approx(four, rel=1e-5) and {"loss", "mae"} <= set(one)


def last_metrics(rundir: RunDirectory) -> Mapping[str, float]:
    """The metrics of the newest checkpoint."""
    return manifest.read(rundir.manifest(saved(rundir)[0])).metrics


ONE_MORE = """
import tensorflow as tf
import trainerd
from jobs import shared

devices = [tf.config.LogicalDeviceConfiguration()] * (1 + trainerd.cluster().rank)
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
"""


def test_workers_need_equally_many_devices(cluster: Cluster) -> None:
    cluster.configure("shared", 2, 'devices = "all"', module="one_more")
    (cluster.project / "one_more.py").write_text(ONE_MORE)
    cluster.start(2)
    assert cluster.end() == [78, 78], cluster.text
    assert "the number of devices differs: the chief has 1, and worker 1 has 2" in cluster.text


def test_a_module_that_uses_tensorflow_while_it_is_imported_is_named(cluster: Cluster) -> None:
    path = cluster.configure("shared", 2)
    (cluster.project / "uses.py").write_text(
        "import tensorflow as tf\nfrom jobs import shared\n\nDATA = tf.constant(1)\n"
    )
    path.write_text(path.read_text().replace("jobs:shared", "uses:shared"))
    cluster.start(2)
    assert cluster.end() == [69, 69], cluster.text
    assert "the module uses uses TensorFlow while it is imported" in cluster.text
