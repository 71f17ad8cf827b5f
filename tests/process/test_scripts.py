"""A script as the entry of a config: it runs as `python script.py` does, and its `fit` is the run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import every
from tests.conftest import Fork
from tests.process.conftest import Start, write_config
from tests.process.trainers import Trainer, saved
from tests.waiting import wait_for
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

SCRIPT = """
import os, sys
print("tensorflow before the script:", "tensorflow" in sys.modules)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import trainerd
print("as", __name__, os.path.basename(sys.argv[0]), os.path.basename(__file__))

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if not os.path.exists("fast"):
            __import__("time").sleep(0.01)

keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(400, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("adam", "mse")
options = {"batch_size": 4, "callbacks": [Slow()], "logdir": "run"}
first = trainerd.keras.fit(model, x, x[:, :1], epochs=1, **options)
second = trainerd.keras.fit(model, x, x[:, :1], initial_epoch=1, epochs=3, **options)
print("epochs", first.epoch + second.epoch, "loss", round(second.history.get("loss", [0.0])[-1], 6))
"""


def paused(start: Start, project: Path, script: str, more: str) -> Trainer:
    """A run of a script, paused when it has trained a little."""
    (project / "train.py").write_text(script)
    write_config(project, entry="train.py", more=more)
    run = start("run")
    run.until_training(20)
    assert run.pause() == 0, run.text
    return run


def test_a_script_without_a_config_gets_the_parameters_of_the_command_line(start: Start, project: Path) -> None:
    asked = (
        SCRIPT.replace('"run"', '"runs/train"')
        .replace("options =", "params = trainerd.params(epochs=1)\noptions =")
        .replace("epochs=1, **", "**params, **")
    )
    (project / "train.py").write_text(asked)
    (project / "fast").touch()
    run = start("run", "train.py", "--set", "params.epochs=2")
    assert run.end() == 0 and "epochs [0, 1, 1, 2]" in run.text
    state = read_state(RunDirectory(project / "runs" / "train").state)
    assert state is not None and state.params == {"epochs": 2}
    wrong = start("run", "train.py", "--set", "params.epoch=2")
    assert wrong.end() == 69 and "[params] has 'epoch'" in wrong.text and "Did you mean 'epochs'?" in wrong.text


def test_a_script_is_paused_resumes_and_is_the_run_of_its_own_process(start: Start, fork: Fork, project: Path) -> None:
    first = paused(start, project, SCRIPT, "[checkpoint]\nsave_model_steps = 100\n")
    assert "as __main__ train.py train.py" in first.text and "epochs [0" not in first.text
    second = start("run")
    second.until_training(120)
    second.signal(9)
    second.end()
    (project / "fast").touch()
    last = start("start")
    assert last.end() == 0, last.text
    own = fork(project, program="train.py")
    assert own.end() == 0 and "epochs [0, 1, 2] loss" in own.text, "it is the same run, and it is over"
    assert saved(second.rundir)[0] == 300


@pytest.mark.long
def test_nothing_is_imported_before_the_script_does_it(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT)
    (project / "fast").touch()
    write_config(project, entry="train.py", more="max_steps = 150\n")
    command = [sys.executable, "-m", "trainerd", "run"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout + done.stderr
    assert "tensorflow before the script: False" in text and "max_steps = 150 is reached" in text


ADOPTED = """
import argparse, importlib.util, sys
import tensorflow as tf
assert importlib.util.find_spec("keras")
import keras
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs

keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(400, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("adam", "mse")
backup = keras.callbacks.BackupAndRestore("backup")
slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: __import__("time").sleep(0.01))
history = model.fit(x, x[:, :1], batch_size=4, epochs=epochs, verbose=0, callbacks=[backup, slow])
print("epochs", history.epoch, "loss", round(history.history["loss"][-1], 6))
"""


def test_a_script_is_adopted_without_a_changed_line(start: Start, project: Path) -> None:
    first = paused(start, project, ADOPTED, '[script]\nadopt = true\narguments = ["--epochs", "3"]\n')
    assert "trainerd ignores the callback BackupAndRestore" in first.text and 20 < saved(first.rundir)[0] < 300
    second = start("run")
    assert second.end() == 0 and "epochs [0, 1, 2] loss" in second.text, second.text
    assert saved(second.rundir)[0] == 300 and not (project / "backup").exists()


AT_A_PROMPT = """
import sys, time
import keras, numpy as np
import trainerd

sys.ps1 = ">>> "

def ended(epoch, logs):
    print("an epoch ends", flush=True)
    time.sleep(1)

x = np.zeros((8, 1), "float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
slow = keras.callbacks.LambdaCallback(on_epoch_end=ended)
try:
    trainerd.keras.fit(model, x, x, epochs=99, callbacks=[slow], logdir="run")
except trainerd.keras.Paused:
    print("the process lives")
"""


def test_a_pause_at_a_prompt_does_not_end_the_process(fork: Fork, project: Path) -> None:
    (project / "prompt.py").write_text(AT_A_PROMPT)
    run = fork(project, program="prompt.py")
    run.until_printed("an epoch ends")
    assert run.pause() == 0 and "the process lives" in run.text, run.text
    assert saved(run.rundir) == [1]


@pytest.mark.parametrize(
    ("content", "more", "code", "says"),
    [
        (None, "", 69, "train.py does not exist"),
        ("import trainerd\n", "seed = 1\n", 69, "`seed` and `deterministic` have no effect on a script"),
        ("raise ValueError('my own mistake')\n", "", 70, "the program failed at step 0: ValueError: my own mistake"),
        (
            "import sys\nsys.exit(3)\n",
            "",
            70,
            "the script ended itself at step 0 with exit code 3 (train.py, line 2)\n",
        ),
        (
            "exit('no data')\n",
            "",
            70,
            "the script ended itself at step 0 with the message 'no data' (train.py, line 1)\n",
        ),
        (
            ADOPTED,
            '[script]\narguments = ["--epochs", "1"]\n',
            70,
            "this `fit` is Keras's own, which trainerd cannot pause",
        ),
        ("import keras\n", "", 69, "the script has ended, and trainerd has trained nothing"),
    ],
)
def test_what_is_wrong_with_a_script_is_said(
    start: Start, project: Path, content: str | None, more: str, code: int, says: str
) -> None:
    if content is not None:
        (project / "train.py").write_text(content)
    write_config(project, entry="train.py", more=more)
    run = start("run")
    assert run.end() == code and says in run.text, run.text
    assert "SystemExit" not in run.text


@pytest.mark.long
def test_a_script_needs_no_config(start: Start, project: Path) -> None:
    (project / "train.py").write_text(ADOPTED)
    arguments = ["train.py", "--adopt", "--", "--epochs", "3"]
    rundir = project / "runs" / "train"
    first = start("start", *arguments, rundir=rundir)
    assert first.end() == 0, first.text
    paused = start("pause", "--wait", rundir=rundir)  # commands know the script that was started here
    assert paused.end() == 0, paused.text
    own = start("run", rundir=rundir)  # with the same options
    assert own.end() == 0 and "epochs [0, 1, 2] loss" in own.text and saved(own.rundir)[0] == 300
    exported = start("export", "out", "--format", "keras", rundir=rundir)
    assert exported.end() == 0 and (project / "out" / "model.keras").exists(), exported.text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "train.txt"], "expected a script, such as train.py, got 'train.txt'"),
        (["run", "train.py", "--config", "trainerd.toml"], "the script train.py and --config are both given"),
        (["start", "--config", "trainerd.toml", "--adopt"], "are for a script, and entry = 'jobs:counter'"),
        (["check", "syntax.py"], 'the script does not parse:\n  File "{project}/syntax.py", line 2\n'),
        (["check", "gone.py"], "cannot read the script"),
        (
            ["check", "ends.py"],
            "'ends.py': the script ended itself before its fit with exit code 3 (ends.py, line 1).\n",
        ),
        (["check", "train.py"], "line 17, in <module>\n    history = model.fit("),
    ],
)
def test_what_is_wrong_with_options_of_a_script_is_said(
    start: Start, project: Path, arguments: list[str], says: str
) -> None:
    (project / "train.py").write_text(ADOPTED)
    (project / "syntax.py").write_text("import keras\ndef broken(:\n")
    (project / "ends.py").write_text("__import__('sys').exit(3)\n")
    write_config(project)
    run = start(*arguments)
    assert run.end() in (64, 69, 78) and says.replace("{project}", str(project)) in run.text, run.text
    assert "no mistakes" not in run.text


def test_a_script_that_trains_elsewhere_ends_when_it_is_asked_to_pause(start: Start, project: Path) -> None:
    (project / "train.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(600)\n")
    run = start("run", "train.py", rundir=project / "runs" / "train")
    run.until_printed("loading")
    assert run.pause() == 0 and "before" in run.text, run.text


EVALUATES = """
import os, time
import keras
import numpy as np
import trainerd

class Waits(keras.callbacks.Callback):
    def on_test_begin(self, logs=None):
        print("evaluating", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)

x = np.ones((40, 4), "float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
trainerd.keras.fit(model, x, x[:, :1], logdir="run")
trainerd.keras.evaluate(model, x, x[:, :1], callbacks=[Waits()])
print("predicted", trainerd.keras.predict(model, x).shape)
"""


def test_an_evaluation_after_fit_is_shown_and_a_pause_does_not_wait_for_it(start: Start, project: Path) -> None:
    (project / "train.py").write_text(EVALUATES)
    run = start("run", "train.py", rundir=project / "run")
    run.until_printed("evaluating")
    wait_for(lambda: run.state.phase is Phase.EVALUATING, "the evaluation to be shown")
    save = start("save", "--wait", rundir=project / "run")
    assert save.end() == 0 and "step 2" in save.text, save.text
    assert run.pause() == 0 and (run.state.phase, run.state.step) == (Phase.PAUSED, 2), run.text
    (project / "go").touch()
    again = start("run", "train.py", rundir=project / "run")
    assert again.end() == 0 and "predicted (40, 1)" in again.text and again.state.phase is Phase.FINISHED, again.text


@pytest.mark.long
def test_a_script_is_proved_without_touching_its_run(start: Start, project: Path) -> None:
    """It ends in mid-epoch, so its last History lacks the loss that the script reads."""
    (project / "train.py").write_text(SCRIPT.replace('.get("loss", [0.0])', '["loss"]'))
    (project / "fast").touch()
    check = start("check", "train.py")
    assert check.end() == 0 and "run train.py` trains it" in check.text, check.text
    proof = start("prove", "train.py", "--steps", "150", "--interruptions", "1")
    assert proof.end(seconds=300) == 0 and "The same, bit for bit." in proof.text, proof.text
    assert not (project / "run").exists()


LOOPS = """
import sys, time
import keras
import numpy as np
import trainerd

x = np.ones((40, 4), "float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
for epoch in range(3):
    trainerd.keras.fit(model, x, x[:, :1], initial_epoch=epoch, epochs=epoch + 1, verbose=0, logdir="run")
    if sys.argv[1:] == ["wait"] and epoch == 1:
        print("waiting", flush=True)
        try:
            time.sleep(600)
        finally:
            print("unwound", flush=True)
"""


@pytest.mark.parametrize("ask", every(2, ["signals", "a file"]))
def test_calls_of_a_script_are_one_run_which_is_paused_between_them(
    start: Start, fork: Fork, project: Path, ask: str
) -> None:
    (project / "train.py").write_text(LOOPS)
    run = fork(project, program="train.py", arguments=["wait"])
    run.until_printed("waiting")
    if ask == "a file":
        pause = start("pause", "--wait", "--logdir", "run")
        assert pause.end() == 0 and "paused at step 4" in pause.text, pause.text
    else:
        run.signal(signal.SIGUSR1)
        run.signal(signal.SIGTERM)
    assert run.end() == 0 and "unwound" in run.text, run.text
    assert fork(project, program="train.py").end() == 0
    assert [str(each.kind) for each in run_events.read(run.rundir)] == ["start", "pause", "start", "resume", "finish"]
    assert saved(run.rundir)[0] == 6


OWN_FIT = """
import os, time
import keras
import numpy as np

def wait(epoch, logs):
    while not os.path.exists("go"):
        time.sleep(0.05)

model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.zeros((4, 1), "float32")
model.fit(x, x, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=wait)])
"""


def test_a_fit_of_keras_is_not_shown_as_a_start(start: Start, project: Path) -> None:
    (project / "train.py").write_text(OWN_FIT)
    rundir = project / "runs" / "train"
    begun = start("start", "train.py", rundir=rundir)  # which waits until something trains
    assert begun.end() == 0 and "Keras's own `fit` trains, which trainerd cannot pause or resume: pid" in begun.text
    shown = start("status", rundir=rundir)
    assert shown.end() == 0 and "unmanaged (pid" in shown.text
    (project / "go").touch()
    wait_for(lambda: "trained nothing" in begun.rundir.state.read_text(), "the end")
