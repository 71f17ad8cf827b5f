"""How often a job has failed at one step, and what its error says in a line."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import trainerd
from trainerd.daemon import failures
from trainerd.errors import EntryError, JobError, TrainerdError, every_class, exit_code_of, full_message, headline
from trainerd.job.user_code import in_a_line
from trainerd.rundir.state import Failure, Phase, State

OF_AN_OP = """Graph execution error:

Detected at node Reshape defined at (most recent call last):
  File "/home/me/job.py", line 13, in train_step

Input to reshape is a tensor with 5 values, but the requested shape has 4
\t [[{{node Reshape}}]] [Op:__inference_run_399]"""
OF_PYTHON = """Graph execution error:

Detected at node EagerPyFunc defined at (most recent call last):
<stack traces unavailable>
ValueError: boom: my message
second line
Traceback (most recent call last):"""
OF_A_TRACE = """in user code:

    File "/home/me/job.py", line 13, in train_step  *
        return model(x)

    ValueError: Dimensions must be equal, but are 3 and 7
"""
OF_A_TRACED_LAYER = """in user code:

    File "/home/me/job.py", line 13, in train_step  *
        return model(x)

    ValueError: Exception encountered when calling Sequential.call().
    \x20
    \x1b[1mInput 0 of layer 'dense' is incompatible with the layer\x1b[0m
    \x20
    Arguments received by Sequential.call():
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("bad\nand more"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (
            RuntimeError(OF_AN_OP),
            "RuntimeError: Input to reshape is a tensor with 5 values, but the requested shape has 4",
        ),
        (RuntimeError(OF_PYTHON), "ValueError: boom: my message"),
        (OSError("{{function_node x}} CheckNumerics is stateful."), "OSError: CheckNumerics is stateful."),
        (ValueError(OF_A_TRACE), "ValueError: Dimensions must be equal, but are 3 and 7"),
        (ValueError(OF_A_TRACED_LAYER), "ValueError: Input 0 of layer 'dense' is incompatible with the layer"),
        (
            RuntimeError("Exception encountered when calling the service: 503"),
            "RuntimeError: Exception encountered when calling the service: 503",
        ),
        (ValueError("x" * 1000), f"ValueError: {'x' * 288}"),
    ],
)
def test_an_error_in_a_line(error: BaseException, line: str) -> None:
    assert in_a_line(error) == line


@pytest.mark.parametrize(
    "said",
    [
        "Existing cache files found: \n{}.index\n{}.data-00000-of-00001\nTo continue delete the above files.",
        "There appears to be a concurrent caching iterator running - cache lockfile already exists ('{}.lockfile'). If",
    ],
)
def test_a_cache_that_is_half_written_is_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my cache_0.index", "my cache_1.index", "my cache_1.lockfile", "my cache_2.lockfile", "other_9.index"):
        Path(name).touch()
    line = in_a_line(ValueError(said.replace("{}", "my cache_1")))
    command = line.partition("`")[2].partition("`")[0]
    assert f"{tmp_path}/my cache is half written" in line and "another process" in line
    assert subprocess.run(command, shell=True).returncode == 0
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["my cache_0.index", "other_9.index"], "the parts before it may be those of the saved position"


def test_a_message_has_the_jobs_error_in_its_first_line() -> None:
    error = JobError("the job failed in step 5", step=4, sound=False, details="Traceback:\n  mine", failed_at=5)
    error.cause = "ValueError: bad"
    assert headline(error) == "the job failed in step 5: ValueError: bad"
    assert full_message(error) == "the job failed in step 5: ValueError: bad\nTraceback:\n  mine"
    loading = EntryError("entry = 'a:b' does not import:\nTraceback:\n  mine")
    loading.cause = "ImportError: no"
    assert full_message(loading) == "entry = 'a:b' does not import: ImportError: no\nTraceback:\n  mine"


def error_classes() -> list[type[BaseException]]:
    """Import every module of the package that defines an error for users, and return all such classes."""
    package = Path(trainerd.__file__).parent
    for path in sorted(package.rglob("*.py")):
        bases = re.findall(r"^class \w+\((\w+)\):", path.read_text(), re.M)
        if {*bases} & {"SystemExit", *(cls.__name__ for cls in every_class())}:
            importlib.import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    return [*every_class(), *(cls for cls in SystemExit.__subclasses__() if cls.__module__.startswith("trainerd."))]


def made(cls: type[BaseException]) -> BaseException:
    """An instance whose arguments are values of their annotated types."""
    values = {"str": "text", "int": 7, "bool": True, "int | None": 9}
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    named = {each.name: values[each.annotation] for each in parameters if each.kind is each.KEYWORD_ONLY}
    placed = [values[each.annotation] for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    takes_all = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return cls(*(["text"] if takes_all else placed), **named)


def test_pickle_and_copy_keep_every_error() -> None:
    classes = error_classes()
    assert {"JobError", "PeerFailedError", "NoRoomError", "StartError", "Paused"} <= {cls.__name__ for cls in classes}
    for cls in classes:
        error = made(cls)
        if isinstance(error, TrainerdError):
            error.cause = "ValueError: bad"
        for again in (pickle.loads(pickle.dumps(error)), pickle.loads(pickle.dumps(error, 2)), copy.copy(error)):
            assert type(again) is cls
            assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
            assert exit_code_of(again) == exit_code_of(error)


def failed(state: State, step: int) -> State:
    error = JobError("it failed", step=step - 1, sound=False, failed_at=step)
    return replace(state, failure=failures.count(state, error, 1.0))


def test_failures_are_counted_at_one_step_and_while_no_checkpoint_is_made() -> None:
    state = State(phase=Phase.TRAINING)
    for times in range(1, failures.MANY + 1):
        assert not failures.is_too_often(state)
        state = failed(state, 5)
        assert state.failure is not None and state.failure.times == times
    assert failures.is_too_often(state)
    assert "It has failed 10 times at step 5" in str(failures.too_often(state, "it failed\nwith more"))
    state = failed(state, 6)
    assert state.failure == Failure(6, "training", "it failed", 1, 1.0)
    assert failures.with_count(state, "it failed") == "it failed"
    assert failures.with_count(failed(state, 6), "it failed") == "it failed (failed 2 times at step 6)"
