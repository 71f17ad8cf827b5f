"""A run that is over says so before its job is loaded, and one that may not be over loads it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from trainerd.checkpoints.catalogue import newest
from trainerd.checkpoints.manifest import FINISH, About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import parse as configs
from trainerd.config.fingerprint import EPOCHS, SOURCE, of_config
from trainerd.config.schema import Config
from trainerd.daemon.over import over_already
from trainerd.job.source import is_unchanged, source_of
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

Sources = tuple[Path, str]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """A folder with a job that imports another file of the folder, and what `source_of` says of it."""
    (tmp_path / "its_settings.py").write_text("EPOCHS = 2\n")
    (tmp_path / "its_job.py").write_text("import its_settings\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("its_job")
    found = source_of("its_job:job", tmp_path)
    for name in ("its_job", "its_settings"):
        del sys.modules[name]
    return tmp_path, found


def finished(sources: Sources, *, epochs: bool, keys: str = "") -> tuple[Config, RunDirectory]:
    """A run that has finished at step 7."""
    folder, source = sources
    (folder / "trainerd.toml").write_text(f'entry = "its_job:job"\nlogdir = "run"\n{keys}')
    config = configs.load(folder / "trainerd.toml")
    rundir = RunDirectory(config.rundir)
    rundir.create()
    saved = of_config(config) | {SOURCE: source} | ({EPOCHS: "2"} if epochs else {})
    store = CheckpointStore(rundir)
    store.publish(FakeSnapshot(5, 1.0), About("schedule", fingerprint=saved))
    store.publish(FakeSnapshot(7, 1.0), About(FINISH, fingerprint=saved))
    State(Phase.FINISHED, step=7, ended="epochs = 2 are done", job="its_job:job").write(rundir.state)
    return config, rundir


def test_the_source_of_a_job_is_every_file_that_was_imported_from_its_folder(sources: Sources) -> None:
    folder, source = sources
    assert [each.split()[0] for each in source.split("; ")] == ["its_job.py", "its_settings.py"]
    assert is_unchanged(source, folder) and not is_unchanged("", folder) and not is_unchanged(source, folder / "other")
    assert not is_unchanged("built_in.py", folder) and not is_unchanged("its_job.py", folder)
    (folder / "its_settings.py").write_text("EPOCHS = 4\n")
    assert not is_unchanged(source, folder)


def test_the_end_that_the_config_sets_moves_with_it(sources: Sources) -> None:
    config, rundir = finished(sources, epochs=False, keys="max_steps = 7\n")
    left = read_state(rundir.state)
    over = over_already(config, rundir, newest(rundir), left, accepts_changes=False)
    assert over is not None and "max_steps = 7 is reached" in over.why
    assert over_already(config, rundir, newest(rundir), None, accepts_changes=True) == over
    assert over_already(replace(config, max_steps=8), rundir, newest(rundir), left, accepts_changes=False) is None


def test_a_job_that_has_done_its_epochs_is_over(sources: Sources) -> None:
    config, rundir = finished(sources, epochs=True)
    left = read_state(rundir.state)
    over = over_already(config, rundir, newest(rundir), left, accepts_changes=False)
    assert over is not None and over.by_job
    assert over.why.startswith("epochs = 2 are done. ") and "--accept-changes" in over.why
    assert left is not None
    again = over_already(config, rundir, newest(rundir), replace(left, ended=over.why), accepts_changes=False)
    assert again == over


Change = Callable[[Path, RunDirectory], object]
MAY_CHANGE: dict[str, Change] = {
    "the job": lambda folder, rundir: (folder / "its_job.py").write_text("EPOCHS = 4\n"),
    "a file that it imports": lambda folder, rundir: (folder / "its_settings.py").write_text("EPOCHS = 4\n"),
    "the config": lambda folder, rundir: (folder / "trainerd.toml").write_text(
        'entry = "its_job:job"\nlogdir = "run"\nmax_steps = 9\n'
    ),
    "a damaged checkpoint": lambda folder, rundir: rundir.index(7).write_text("x"),
    "a checkpoint that is gone": lambda folder, rundir: rundir.manifest(7).unlink(),
    "a failure since": lambda folder, rundir: State(Phase.FAILED, step=7, error="x").write(rundir.state),
    "no state": lambda folder, rundir: rundir.state.unlink(),
}


@pytest.mark.parametrize("what", MAY_CHANGE)
def test_a_job_that_may_want_more_epochs_is_not_over(sources: Sources, what: str) -> None:
    _, rundir = finished(sources, epochs=True)
    MAY_CHANGE[what](sources[0], rundir)
    config = configs.load(sources[0] / "trainerd.toml")
    assert over_already(config, rundir, newest(rundir), read_state(rundir.state), accepts_changes=False) is None


def test_a_person_may_say_that_something_else_has_changed(sources: Sources) -> None:
    config, rundir = finished(sources, epochs=True)
    assert over_already(config, rundir, newest(rundir), read_state(rundir.state), accepts_changes=True) is None


def test_what_is_no_keras_job_decides_by_itself_whether_it_is_over(sources: Sources) -> None:
    config, rundir = finished(sources, epochs=False)
    assert over_already(config, rundir, newest(rundir), read_state(rundir.state), accepts_changes=False) is None


def test_what_was_due_at_the_last_step_is_done_first(sources: Sources) -> None:
    config, rundir = finished(sources, epochs=True, keys="max_steps = 7\n")
    rundir.manifest(7).unlink()
    CheckpointStore(rundir).publish(FakeSnapshot(7, 1.0), About(FINISH, unfinished=("evaluate",)))
    assert over_already(config, rundir, newest(rundir), read_state(rundir.state), accepts_changes=False) is None


@pytest.mark.parametrize("keys", ["", "max_steps = 7\n"])
def test_a_finished_run_says_so_without_tensorflow(sources: Sources, keys: str) -> None:
    _, rundir = finished(sources, epochs=True, keys=keys)
    code = "import sys; sys.modules['tensorflow'] = None; from trainerd.cli import main; main(['run'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=sources[0], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Finished: " in done.stdout
    state = read_state(rundir.state)
    assert state is not None and (state.phase, state.step) == (Phase.FINISHED, 7)
