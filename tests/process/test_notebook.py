"""The recipe for notebooks, walked in a kernel of Jupyter, with a cell that is stopped as by the stop button."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_core.utils import ensure_async
from nbclient import NotebookClient

from tests.pages import PYTHON, ROOT
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

RECIPE = (ROOT / "docs" / "recipes" / "jupyter.md").read_text(encoding="utf-8")
JOBS = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
CELL_SECS = 90
EPOCHS = 200  # of ten steps each: some seconds of training
PAUSED = "paused: run this cell again to resume\n"
# A callback that takes a second at the end of an epoch, in which a file is there.
SLOW = """keras.callbacks.LambdaCallback(
    on_epoch_end=lambda epoch, logs: (open("slow", "w").close(), __import__("time").sleep(1))
)"""
QUICK = "[summary]\nmetrics_secs = 0.5\n"  # the curve, which has its first point after ten seconds otherwise
DIGEST = "print('weights', b''.join(each.tobytes() for each in model.get_weights()).hex())"


def block(text: str, language: str) -> str:
    """Return the only block of a page in this language."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def example(text: str, file: str | None) -> str:
    """Return the first Python example of a page for this file, or the first without a file."""
    return next(match["text"] for match in PYTHON.finditer(text) if match["file"] == file)


class Notebook:
    """A notebook with a kernel of its own, as a person uses it: one cell at a time.

    Args:
      folder: where its kernel works.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.client = NotebookClient(
            nbformat.v4.new_notebook(),
            timeout=CELL_SECS,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )

    async def run(self, text: str) -> str:
        """Run a cell. Return what it printed."""
        cell = nbformat.v4.new_code_cell(text)
        self.client.nb.cells.append(cell)
        await self.client.async_execute_cell(cell, len(self.client.nb.cells) - 1)
        return "".join(each.get("text", "") for each in cell.outputs)

    async def run_and_stop(self, text: str, is_time: Callable[[], bool]) -> str:
        """Run a cell, and press the stop button as soon as it is time."""
        running = asyncio.create_task(self.run(text))
        while not running.done():
            if is_time():
                assert self.client.km is not None
                await ensure_async(self.client.km.interrupt_kernel())
                break
            await asyncio.sleep(0.02)
        return await running


def has_trained(rundir: RunDirectory, steps: int) -> bool:
    """Whether a run trains, and has done so many steps."""
    state = read_state(rundir.state)
    return state is not None and state.phase is Phase.TRAINING and state.step >= steps


def state_of(rundir: RunDirectory) -> State:
    """Return what a run says of itself."""
    state = read_state(rundir.state)
    assert state is not None
    return state


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the notebook, whose kernel finds `trainerd`. A daemon that a failed test leaves in it is ended."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / "jupyter"))
    project = tmp_path / "project"
    project.mkdir()
    yield project
    for lock in project.rglob("lock"):
        if (holder := read_holder(RunDirectory(lock.parent))) is not None:
            os.kill(holder.pid, signal.SIGKILL)


@pytest.mark.long
def test_the_recipe_for_notebooks_works_in_a_kernel(folder: Path) -> None:
    cell = example(RECIPE, "cell.py").replace("epochs=5", f"epochs={EPOCHS}")
    rundir = RunDirectory(folder / "runs" / "notebook")
    (folder / "job.py").write_text(example(JOBS, "job.py"), encoding="utf-8")
    (folder / "trainerd.toml").write_text(block(RECIPE, "toml") + QUICK, encoding="utf-8")

    async def walk() -> dict[str, Any]:
        notebook, found = Notebook(folder), dict[str, Any]()
        async with notebook.client.async_setup_kernel():
            found["stopped"] = await notebook.run_and_stop(cell, lambda: has_trained(rundir, 100))
            found["paused at"] = state_of(rundir).step
            slow = cell.replace("verbose=0", f"verbose=0, callbacks=[{SLOW}]")
            found["stopped at an epoch's end"] = await notebook.run_and_stop(slow, (folder / "slow").exists)
            found["again"] = await notebook.run(cell)
            found["weights"] = await notebook.run(DIGEST)
            await notebook.run(cell.replace("runs/notebook", "runs/calm"))
            found["calm weights"] = await notebook.run(DIGEST)
            for line in block(RECIPE, "sh").splitlines():
                found[line] = await notebook.run(f"!{line}")
                while "has no curve of 'loss' yet" in found[line]:
                    found[line] = await notebook.run(f"!{line}")
            found["state"] = await notebook.run(example(RECIPE, None))
        return found

    found = asyncio.run(walk())
    assert found["stopped"].endswith(PAUSED) and found["stopped at an epoch's end"].endswith(PAUSED), found
    assert 100 <= found["paused at"] < 10 * EPOCHS and found["again"] == "", found["again"]
    assert state_of(rundir).step == 10 * EPOCHS
    assert "weights" in found["weights"] and found["weights"] == found["calm weights"]
    assert "step" in found["trainerd status"], found["trainerd status"]
    assert (folder / "loss.png").exists(), found["trainerd history --image loss.png"]
    assert "'loss'" in found["state"] and "global_step/" in found["state"], found["state"]
