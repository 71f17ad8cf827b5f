"""The house: who may import whom, and that TensorFlow stays out of where it does not belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainerd

ROOT = Path(trainerd.__file__).parent
# From the ground up. A room imports from its own floor and from those below.
FLOORS = [
    {"errors", "target", "best", "text"},
    {"files", "regular_files", "config", "job", "background", "forked"},
    {"rundir", "state", "fingerprint", "lock"},
    {"sessions", "checkpoints", "events", "data"},
    {"hooks"},
    {"supervisor"},
    {"keras"},
    {"daemon"},
    {"proof"},
    {"cli"},
]
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}
MODULES = sorted(p for p in ROOT.rglob("*.py") if p.name != "__main__.py" and p != ROOT / "__init__.py")
NEEDS_TENSORFLOW = {
    "data.py",
    "sessions/keras/callbacks.py",
    "checkpoints/contents/unsaved_variables.py",
    "sessions/tf2/job_session.py",
    "sessions/tf2/while_loop.py",
    "sessions/keras/job_checks.py",
    "sessions/keras/job_session.py",
    "sessions/keras/latest_values.py",
    "checkpoints/contents/python_state.py",
    "sessions/tf2/model.py",
    "checkpoints/contents/values.py",
    "sessions/tf2/metrics.py",
    "sessions/input/iterators.py",
    "checkpoints/format/bundle_writer.py",
    "sessions/input/saveable.py",
    "checkpoints/contents/keras_variables.py",
    "proof/traced.py",
    "proof/variables.py",
    "checkpoints/contents/object_graph.py",
    "sessions/input/pipeline.py",
    "sessions/input/iterator_state.py",
    "sessions/input/shuffle_order.py",
    "checkpoints/format/snapshotter.py",
    "sessions/load.py",
    "sessions/tf1/callables.py",
    "sessions/tf1/model.py",
    "sessions/tf1/state.py",
    "checkpoints/format/os_errors.py",
    "checkpoints/contents/tensor_values.py",
    "sessions/tf1/remembered.py",
    "sessions/tf1/events.py",
    "monitored/session_creators.py",
    "managed/run.py",
    "sessions/keras/fit_data.py",
    "sessions/keras/supervise.py",
    "sessions/tf1/run.py",
    "sessions/tf1/program.py",
    "monitored/save_settings.py",
    "hooks/__init__.py",
    "hooks/base.py",
    "hooks/before_step.py",
    "hooks/stopping.py",
    "hooks/summaries.py",
    "hooks/logging_tensor.py",
    "monitored/graph_session.py",
    "monitored/training_session.py",
    "monitored/step_session.py",
    "sessions/tf1/defaults.py",
    "checkpoints/contents/graph_digest.py",
    "sessions/tf1/job_session.py",
    "supervisor/looper_thread.py",
    "sessions/tf1/session.py",
    "sessions/tf1/saver.py",
    "sessions/tf2/program.py",
    "sessions/tf2/session.py",
    "supervisor/subclasses.py",
    "supervisor/supervisor.py",
    "events/event_file.py",
    "events/purge.py",
    "events/weight_images.py",
    "examples/counter.py",
    "examples/digits.py",
    "examples/starter/job.py",
}
NEEDS_WHAT_NEEDS_IT = {
    "events/writer.py",
    "hooks/checkpoint_saver.py",
    "keras.py",
    "monitored/lifecycle.py",
    "supervisor/daemon_supervisor.py",
    "sessions/tf2/run.py",
}
HEAVY = ("tensorflow", "keras")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


LIGHT = [path for path in MODULES if name(path) not in NEEDS_TENSORFLOW | NEEDS_WHAT_NEEDS_IT]


def imports(path: Path, *, everywhere: bool) -> Iterator[str]:
    """The modules that a file imports; those inside functions, and for types alone, only if `everywhere`."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        hidden = isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        )
        if hidden and not everywhere:
            skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_imports_run_one_way(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room == "examples":
        return
    for module in imports(path, everywhere=True):
        parts = module.split(".")
        if parts[0] == "trainerd" and len(parts) > 1 and parts[1] in FLOOR:
            assert FLOOR[parts[1]] <= FLOOR[room], f"{name(path)} imports {module}, which is above it"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_tensorflow_is_imported_where_it_is_needed_and_nowhere_else(path: Path) -> None:
    found = [module for module in imports(path, everywhere=True) if module.split(".")[0] in HEAVY]
    assert bool(found) == (name(path) in NEEDS_TENSORFLOW), found


@pytest.mark.parametrize("path", LIGHT, ids=name)
def test_what_needs_no_tensorflow_imports_nothing_that_does(path: Path) -> None:
    needing = {"trainerd.events.writer"} | {
        "trainerd." + n.removesuffix(".py").replace("/", ".") for n in NEEDS_TENSORFLOW
    }
    for module in imports(path, everywhere=False):
        assert module not in needing and module.rpartition(".")[0] not in needing, module


def test_the_whole_cli_and_the_daemons_parent_load_without_tensorflow() -> None:
    """What the walk above shows of files is shown here of a process."""
    code = (
        "import sys, trainerd, trainerd.daemon.detach, trainerd.daemon.process\n"
        "from trainerd.cli.app import COMMANDS, cli\n"
        "assert all(cli.get_command(None, c) for c in COMMANDS)\n"
        "bad = [m for m in ('tensorflow', 'keras', 'tensorboard', 'numpy') if m in sys.modules]\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_trainerd_changes_nothing() -> None:
    code = (
        "import signal, logging, os, threading\n"
        "before = (signal.getsignal(15), logging.getLogger().handlers[:], dict(os.environ), threading.active_count())\n"
        "import trainerd\n"
        "after = (signal.getsignal(15), logging.getLogger().handlers[:], dict(os.environ), threading.active_count())\n"
        "assert before == after\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
