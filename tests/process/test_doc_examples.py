"""The examples of the documentation do what the pages say.

A Python block that defines `job` is checked by `trainerd check`. The shell blocks under `<!-- run -->` are run, but for
those of the tutorials, which the packaging tests type.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import every
from tests.conftest import Fork
from tests.pages import PAGES, PYTHON, ROOT, TUTORIALS, script_of, write_files
from tests.process.trainers import Trainer
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory

DEADLINE_SECS = 240


def jobs() -> Iterator[tuple[str, str, str]]:
    """Every job of the documentation: the page and its place there, its file and its text."""
    for page in PAGES:
        examples = [m for m in PYTHON.finditer(page.read_text(encoding="utf-8")) if "def job(" in m["text"]]
        for number, match in enumerate(examples, 1):
            yield f"{page.name}-{number}", match["file"] or "job.py", match["text"]


def programs() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Every program of the documentation: its page, its file, and all files of that page."""
    for page in PAGES:
        files = {m["file"]: m["text"] for m in PYTHON.finditer(page.read_text(encoding="utf-8")) if m["file"]}
        for file, text in files.items():
            is_entry = "def job(" in text or "def main(" in text
            trains = "with " in text or "trainerd.keras.fit(" in text
            if not is_entry and trains and "while not sv.should_stop()" not in text:
                yield page.name, file, files


SCRIPTS = [name for page in PAGES if script_of(page) and (name := str(page.relative_to(ROOT))) not in TUTORIALS]
JOBS, PROGRAMS = list(jobs()), list(programs())


def require_success(trainer: Trainer) -> str:
    """Wait until a command or a program has succeeded. All that it printed."""
    assert trainer.end(DEADLINE_SECS) == 0, trainer.text
    return trainer.text


def run(command: list[str], folder: Path) -> None:
    """Run a command with this Python's trainerd on the path; it must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_SECS,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a page's run. A daemon that a failed test leaves in it is ended."""
    yield tmp_path
    for lock in tmp_path.rglob("lock"):
        if (holder := read_holder(RunDirectory(lock.parent))) is not None:
            os.kill(holder.pid, signal.SIGKILL)


def test_there_are_examples() -> None:
    assert len(JOBS) >= 4 and "README.md" in SCRIPTS


@pytest.mark.parametrize(("file", "text"), every(3, [job[1:] for job in JOBS]), ids=[job[0] for job in JOBS])
def test_a_job_of_the_documentation_can_be_trained(fork: Fork, tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    (tmp_path / "trainerd.toml").write_text(f'entry = "{Path(file).stem}:job"\nlogdir = "run"\n', encoding="utf-8")
    assert "All is well." in require_success(fork(tmp_path, run=["check"]))


@pytest.mark.parametrize(
    ("file", "files"), every(4, [p[1:] for p in PROGRAMS]), ids=["-".join(p[:2]) for p in PROGRAMS]
)
def test_a_program_of_the_documentation_runs_and_resumes(
    fork: Fork, tmp_path: Path, file: str, files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    steps = []
    for _ in range(2):
        require_success(fork(tmp_path, program=file))
        [newest] = [max(RunDirectory(lock.parent).steps()) for lock in tmp_path.rglob("lock") if "pre" not in str(lock)]
        steps.append(newest)
    is_fit = re.search(r"(model|keras)\.fit\(", files[file])  # which knows when it is done
    assert steps[1] == (steps[0] if is_fit else 2 * steps[0]) > 0


def test_a_function_of_the_documentation_is_run_by_the_daemon(fork: Fork, tmp_path: Path) -> None:
    [text] = [
        match["text"]
        for page in PAGES
        for match in PYTHON.finditer(page.read_text(encoding="utf-8"))
        if match["file"] == "program.py"
    ]
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    (tmp_path / "trainerd.toml").write_text('entry = "program:main"\nlogdir = "run"\nmax_steps = 50\n')
    require_success(fork(tmp_path, run=["run"]))
    assert max(RunDirectory(tmp_path / "run").steps()) == 50


@pytest.mark.parametrize(
    "page", [pytest.param(each, marks=() if each == "README.md" else pytest.mark.long) for each in SCRIPTS]
)
def test_the_commands_of_a_page_work_one_after_the_other(folder: Path, page: str) -> None:
    write_files(ROOT / page, folder)
    run(["bash", "-eu", "-c", script_of(ROOT / page)], folder)
