"""A service's life: start, look, save, reload, stop, start again, reboot."""

from __future__ import annotations

import json

import pytest

from tests.systemd.conftest import NewService
from tests.systemd.machine import TRAINERD, Machine, wait_for
from tests.systemd.service import COUNTER, Service
from trainerd.rundir.state import Phase


@pytest.fixture
def plain(machine: Machine) -> Service:
    """The service that is no instance, as one types `systemctl start trainerd` for."""
    return Service(machine)


def test_start_look_stop_and_resume(plain: Service) -> None:
    """What the README promises, in its order."""
    machine = plain.machine
    plain.configure(more="[log]\nprogress_secs = 1\n")
    said = plain.install()
    assert "systemctl enable --now trainerd" in said

    plain.systemctl("start")
    assert plain.first_steps() == [1], "it returned before the first step was done"
    assert plain.show("ActiveState") == "active"
    assert str(plain.state.phase) == "training"
    assert plain.state.step >= 1
    assert plain.state.pid == plain.pid

    def status() -> str | None:
        text = plain.systemctl("status").stdout
        return text if "steps/s" in text else None

    text = wait_for("the rate in `systemctl status`", status)
    assert "training: step " in text
    assert ", p " in text
    shown = json.loads(machine.output(TRAINERD, "status", "--json", "--config", plain.config))
    assert shown["running"]
    assert shown["phase"] == "training"
    runs = {each["name"]: each for each in json.loads(machine.output(TRAINERD, "list", "--json"))}
    assert (runs["trainerd"]["phase"], runs["trainerd"]["running"]) == ("training", True)
    lines = machine.output("runuser", "-u", "nobody", "--", TRAINERD, "list").splitlines()
    [line] = [line for line in lines if line.split()[0] == "trainerd"]
    assert line.split()[1] == "running" and "active: training: step " in line
    assert "start  " in machine.output(TRAINERD, "events", "trainerd")

    plain.systemctl("stop")
    assert plain.show("ActiveState") == "inactive"
    assert plain.show("Result") == "success"
    assert plain.show("ExecMainStatus") == "0"
    assert plain.state.phase == Phase.PAUSED
    stopped_at = plain.state.step
    assert plain.saved_steps[-1] == stopped_at

    plain.systemctl("start")
    assert plain.first_steps() == [1, stopped_at + 1]
    plain.systemctl("restart")
    assert plain.first_steps() == [1, stopped_at + 1, plain.checkpoints("pause")[-1] + 1]
    assert plain.show("NRestarts") == "0"
    plain.remove()


def test_the_journal_has_levels_and_fields(service: NewService) -> None:
    """Each line can be filtered by what it is about."""
    one = service(COUNTER, "[log]\nprogress_secs = 1\n")
    one.systemctl("start")
    one.systemctl("kill", "--signal=USR2", "--kill-whom=main")
    wait_for("a line of progress", lambda: one.journal("EVENT=progress"))
    wait_for("the stacks", lambda: one.journal("EVENT=signal"))
    started = one.journal("EVENT=training")[-1]
    assert started["PRIORITY"] == "6"
    assert started["PHASE"] == "training"
    assert started["STEP"] == "1"
    assert started["LOGDIR"] == one.folder
    assert int(one.journal("EVENT=progress")[-1]["STEP"]) > 1
    one.systemctl("stop")
    [saved] = one.journal("EVENT=checkpoint")
    assert saved["REASON"] == "pause"
    assert saved["MESSAGE"].startswith(f"saved step {saved['STEP']} (pause)")
    [stacks] = one.journal("-p", "warning")
    assert stacks["EVENT"] == "signal"
    assert stacks["PRIORITY"] == "4"
    assert "Thread" in stacks["MESSAGE"]


def test_usr1_saves_and_training_continues(service: NewService) -> None:
    """Both ways to send it."""
    one = service()
    one.systemctl("start")
    pid = one.pid
    one.systemctl("kill", "--signal=USR1", "--kill-whom=main")
    wait_for("a checkpoint", lambda: len(one.checkpoints("request")) == 1)
    one.wait_for_progress()
    one.machine.run("kill", "-USR1", str(pid))
    wait_for("another checkpoint", lambda: len(one.checkpoints("request")) == 2)
    one.wait_for_progress()
    first, second = one.checkpoints("request")
    assert 1 <= first < second
    assert one.saved_steps == [first, second]
    assert one.pid == pid
    assert one.show("NRestarts") == "0"


def test_reload_reads_the_config_again(service: NewService) -> None:
    """A changed schedule holds from then on; a broken config changes nothing."""
    one = service(COUNTER, "[checkpoint]\nsave_model_secs = 0\n")
    one.systemctl("start")
    pid = one.pid
    assert one.saved_steps == []

    one.configure(more="[checkpoint]\nsave_model_secs = 1\n")
    one.systemctl("reload")
    wait_for("the reload", lambda: one.journal("EVENT=reload"))
    wait_for("a checkpoint on the new schedule", lambda: len(one.checkpoints("schedule")) >= 2)

    one.configure(more="[checkpoint]\nsave_model_secs = -1\nkeep_lost = 3\n")
    one.systemctl("reload")
    failed = wait_for("word of the broken config", lambda: one.journal("EVENT=reload-failed"))
    assert failed[-1]["PRIORITY"] == "3"
    assert "keep_last" in failed[-1]["MESSAGE"]
    count = len(one.checkpoints("schedule"))
    wait_for("a checkpoint on the old schedule", lambda: len(one.checkpoints("schedule")) > count)
    assert one.show("ActiveState") == "active"
    assert one.show("NRestarts") == "0"
    assert one.pid == pid


def test_two_runs_at_once_and_one_that_finishes(service: NewService, machine: Machine) -> None:
    """Instances do not know of each other. A finished run stays off, and starting it again is no error."""
    one = service()
    one.systemctl("start")
    digits = Service(machine, "digits")
    digits.configure("trainerd.examples.digits:job", "max_steps = 100\n")
    digits.install()
    digits.systemctl("start")
    assert digits.wait_until_over() == "inactive"
    assert digits.show("Result") == "success"
    assert digits.state.phase is Phase.FINISHED
    assert digits.saved_steps[-1] == 100
    assert "val_accuracy" in digits.state.metrics
    digits.systemctl("start")
    assert digits.wait_until_over() == "inactive"
    assert digits.show("Result") == "success"
    assert one.show("ActiveState") == "active"
    one.wait_for_progress()
    assert machine.path("/var/lib/private/trainerd-digits").stat().st_mode & 0o777 == 0o700
    digits.remove()


def test_a_reboot_resumes_where_it_was(service: NewService, machine: Machine) -> None:
    """What is enabled saves when the machine goes down and goes on when it is up."""
    one = service()
    one.systemctl("enable", "--now")
    one.wait_for_progress()
    machine.reboot()
    one.wait_until_training()
    [saved] = one.saved_steps
    assert one.first_steps() == [saved + 1]
    before = machine.output("journalctl", "-u", one.unit, "-b", "-1", "-o", "cat", "EVENT=checkpoint")
    assert f"saved step {saved} (pause)" in before


SCRIPT = """
import pathlib, sys, time
import keras
import numpy as np
import trainerd

x = np.ones((40, 4), "float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
for epoch in range(3):
    trainerd.keras.fit(model, x, x[:, :1], initial_epoch=epoch, epochs=epoch + 1, logdir=sys.argv[1])
    if epoch == 1 and not pathlib.Path(sys.argv[1], "go").exists():
        print("between two calls", flush=True)
        time.sleep(600)
"""


def test_a_script_is_a_service_which_is_stopped_between_two_calls_of_fit(service: NewService) -> None:
    one = service("script.py")
    one.machine.write("/etc/trainerd/script.py", SCRIPT)
    one.configure("script.py", f'[script]\narguments = ["{one.folder}"]\n')
    one.systemctl("start")
    wait_for("two calls to end", lambda: "between two calls" in [line["MESSAGE"] for line in one.journal()])
    assert (one.state.phase, one.state.step) == (Phase.FINISHING, 4)
    one.systemctl("stop")
    assert one.show("Result") == "success" and one.state.phase is Phase.PAUSED
    one.tell("go")
    one.systemctl("start")
    assert one.wait_until_over() == "inactive" and (one.state.phase, one.state.step) == (Phase.FINISHED, 6)
