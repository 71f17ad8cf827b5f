"""Keras on another backend than TensorFlow: one sentence, before anything of it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.unit.conftest import Cli
from trainerd.errors import BackendError
from trainerd.job.keras_backend import require_tensorflow

SENTENCE = (
    "Keras's backend is 'torch', and trainerd trains Keras models on TensorFlow alone: set KERAS_BACKEND=tensorflow in "
    "the environment."
)


@pytest.mark.parametrize("named", ["", "tensorflow"])
def test_tensorflow_is_what_keras_runs_on(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", named)
    require_tensorflow()
    monkeypatch.delenv("KERAS_BACKEND")
    require_tensorflow()


def test_once_keras_is_imported_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration file may have named the backend, and the variable may have been set too late."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(config=SimpleNamespace(backend=lambda: "jax")))
    with pytest.raises(BackendError, match="backend is 'jax'"):
        require_tensorflow()


@pytest.mark.parametrize("command", ["run", "check", "prove"])
def test_a_command_says_so_and_shows_no_traceback(command: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.delitem(sys.modules, "keras", raising=False)  # as in a process of its own
    code, text = cli(command)
    assert code == 69 and SENTENCE in text and "Traceback" not in text


def test_a_program_ends_with_the_sentence_alone() -> None:
    script = "from trainerd.job.keras_backend import require_tensorflow as require\nrequire()"
    environment = os.environ | {"KERAS_BACKEND": "torch"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{SENTENCE}\n")
