"""The house: who may import whom, that TensorFlow stays out of where it does not belong, and how big things are."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import trainerd
from trainerd.system import process_wide

ROOT = Path(trainerd.__file__).parent
# From the ground up. A room imports from its own floor and from those below.
FLOORS = [
    {"errors", "text", "version"},
    {"system"},
    {"system/resources"},
    {"rundir"},
    {"rundir/requests"},
    {"job"},
    {"config"},
    {"checkpoints"},
    {"checkpoints/contents", "history"},
    {"checkpoints/format"},
    {"loop", "loop/changes", "loop/guard", "loop/minima"},
    {"loop/signals"},
    {"workers"},
    {"workers/engine"},
    {"events"},
    {"run"},
    {"sessions/input"},
    {"sessions/tf1", "sessions/tf2"},
    {"sessions", "sessions/keras", "workers/training"},
    {"programs", "programs/hooks", "programs/keras"},
    {"programs/monitored", "programs/supervisor"},
    {
        "programs/estimator",
        "programs/estimator/evaluation",
        "programs/estimator/export",
        "programs/estimator/functions",
        "programs/estimator/graph",
    },
    {"programs/experiment", "programs/experiment/export"},
    {"data", "hooks", "keras", "script"},
    {"compat", "compat/estimator", "daemon/systemd", "open_job"},
    {"daemon"},
    {"copies", "sweeps"},
    {"doctor", "doctor/upgrade", "proof", "proof/traced", "release", "watch", "watch/delivery", "watch/interruptions"},
    {"agent/when"},
    {"agent"},
    {"watch/page"},
    {"cli"},
    {"cli/install"},
    {
        "cli/commands",
        "cli/commands/copies",
        "cli/commands/history",
        "cli/commands/jobs",
        "cli/commands/queue",
        "cli/commands/runs",
        "cli/commands/sweeps",
        "cli/commands/training",
    },
    {"examples"},
]
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}
# Rooms whose files may import TensorFlow. No other room imports one of these while it is imported itself.
WITH_TENSORFLOW = {
    "checkpoints/contents",
    "checkpoints/format",
    "compat/estimator",
    "data",
    "events",
    "examples",
    "hooks",
    "keras",
    "run",
    "open_job",
    "programs/estimator",
    "programs/estimator/evaluation",
    "programs/estimator/export",
    "programs/estimator/functions",
    "programs/estimator/graph",
    "programs/experiment",
    "programs/experiment/export",
    "programs/hooks",
    "programs/keras",
    "programs/monitored",
    "programs/supervisor",
    "proof/traced",
    "release",
    "sessions/input",
    "sessions/keras",
    "sessions/tf1",
    "sessions/tf2",
    "workers/engine",
    "workers/training",
}
HEAVY = ("tensorflow", "keras")
MODULES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.name not in ("__main__.py", "__init__.py"))
MOST_FILES, MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_METHODS = 20, 2500, 50, 20


@pytest.fixture(autouse=True, scope="module")
def no_garbage_is_looked_for() -> Iterator[None]:
    """The trees of all files are kept to the end: a million objects, which each collection would look through."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file: each rule looks through them."""
    return list(ast.walk(tree_of(path)))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def room_of(module: str) -> str | None:
    """The room of a module, or of what is in it, such as "checkpoints/format"; None for what is in no room."""
    parts = module.split(".")[1:]
    for room in ("/".join(parts[:3]), "/".join(parts[:2]), parts[0] if parts else ""):
        if room in FLOOR:
            return room
    return None


def room(path: Path) -> str:
    found = room_of(".".join(["trainerd", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"))
    assert found is not None, f"{name(path)} is in no room: give it a floor"
    return found


@functools.cache
def imports(path: Path, *, everywhere: bool, for_types: bool = True) -> list[str]:
    """The modules that a file imports; those inside functions, and for types alone, only if `everywhere`."""
    found = list[str]()
    skipped: set[ast.AST] = set()
    for node in nodes_of(path):
        is_of_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        is_first = not (is_of_types or isinstance(node, ast.FunctionDef))
        if not (is_first or everywhere) or (is_of_types and not for_types):
            skipped.update(ast.walk(node))
    for node in nodes_of(path):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_imports_run_downwards() -> None:
    upwards = [
        f"{name(path)} imports {module}, which is above it"
        for path in MODULES
        for module in imports(path, everywhere=True)
        if module.split(".")[0] == "trainerd"
        and (there := room_of(module)) is not None
        and FLOOR[there] > FLOOR[room(path)]
    ]
    assert upwards == []


def test_a_room_without_tensorflow_has_none() -> None:
    found = []
    for path in MODULES:
        if room(path) not in WITH_TENSORFLOW:
            at_first = [each for each in imports(path, everywhere=False) if each.split(".")[0] == "trainerd"]
            heavy = [each for each in imports(path, everywhere=True, for_types=False) if each.split(".")[0] in HEAVY]
            heavy += [each for each in at_first if room_of(each) in WITH_TENSORFLOW]
            found += [f"{name(path)} imports {each}" for each in heavy]
    assert found == []


def test_the_rooms_with_tensorflow_need_it() -> None:
    found = [(room(path), imports(path, everywhere=True, for_types=False)) for path in MODULES]
    needing = {room for room, names in found for each in names if each.split(".")[0] in HEAVY}
    assert needing | {"data", "keras"} == WITH_TENSORFLOW


# ---------------------------------------------------------------------- paths

CHANGES = {"chmod", "unlink", "rename", "rmdir", "mkdir", "touch", "write_text", "write_bytes", "symlink_to", "open"}
CHANGES_OF_OS = {"replace", "remove", "link", "symlink", "makedirs", "truncate", "utime", "rmtree", "copyfile"}
# What has a reason to name a path twice: the process's own lock, a new folder, and the folder of the user's own runs.
BY_PATH = {("rundir/lock.py", "open"), ("rundir/paths.py", "mkdir")}
BY_PATH |= {("rundir/registry.py", "unlink"), ("rundir/registry.py", "mkdir")}


def test_nothing_in_a_run_directory_is_changed_by_its_path() -> None:
    """`safe_paths` does it: see there what a job could do in between."""
    found = []
    for path in [path for path in MODULES if room(path) in ("rundir", "checkpoints", "history")]:
        for node in [node for node in nodes_of(path) if isinstance(node, ast.Call)]:
            *owner, word = ast.unparse(node.func).split(".")
            changes = word in (CHANGES_OF_OS if owner in (["os"], ["shutil"]) else ()) or word in CHANGES
            if changes and owner != ["safe_paths"] and (name(path), word) not in BY_PATH:
                found.append(f"{name(path)}, line {node.lineno}: {word}")
    assert found == []


# ---------------------------------------------------------------------- what belongs to the process

CONTAINERS = {"list", "dict", "set", "deque", "defaultdict", "count", "local", "WeakKeyDictionary", "WeakSet"}


def changing_values(path: Path) -> Iterator[str]:
    """The values of a module that change while the process lives: a name of a constant has capital letters only."""
    tree = tree_of(path)
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    pairs = [(node.targets[0], node.value) for node in tree.body if isinstance(node, ast.Assign)]
    pairs += [(node.target, node.value) for node in tree.body if isinstance(node, ast.AnnAssign) and node.value]
    for target, value in pairs:
        made = ast.unparse(value.func).split("[")[0] if isinstance(value, ast.Call) else ""
        if isinstance(value, ast.List | ast.Dict | ast.Set) or made in own or made.split(".")[-1] in CONTAINERS:
            yield from [word for word in [ast.unparse(target)] if word.islower() and word != "__all__"]
    yield from (f"global {', '.join(node.names)}" for node in nodes_of(path) if isinstance(node, ast.Global))


def test_what_changes_and_belongs_to_the_process_is_in_one_table() -> None:
    assert [f"{name(path)}: {found}" for path in MODULES for found in changing_values(path)] == []
    kept = dict[str, str]()
    for path in MODULES:
        for node in [node for node in nodes_of(path) if isinstance(node, ast.Call)]:
            if ast.unparse(node.func) == "process_wide":
                kept[ast.literal_eval(node.args[0])] = name(path)
    assert kept == {word: text.partition(":")[0] for word, text in process_wide.WHAT.items()}


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=name)
def test_a_folder_can_be_looked_over(folder: Path) -> None:
    files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert len(files) <= MOST_FILES and lines <= MOST_LINES, f"{len(files)} files, {lines} lines"


def test_functions_are_short_and_long_classes_say_why() -> None:
    found = []
    for node in [node for path in MODULES for node in nodes_of(path)]:
        if isinstance(node, ast.FunctionDef):
            first = node.body[ast.get_docstring(node) is not None :] or node.body
            if (lines := (node.end_lineno or 0) - first[0].lineno + 1) > MOST_LINES_OF_A_FUNCTION:
                found.append(f"{node.name} has {lines} lines")
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, ast.FunctionDef) for each in node.body)
            if methods > MOST_METHODS and "One class, since" not in (ast.get_docstring(node) or ""):
                found.append(f"{node.name} has {methods} methods")
    assert found == []


# A docstring says what a thing does or is. These words begin a clause that hides it.
CLAUSES = {"What", "Whether", "That", "How", "Where", "Which", "As", "It", "Those"}
NOUNS = {
    "The",
    "A",
    "An",
    "One",
    "This",
    "These",
    "Of",
    "All",
    "No",
    "Nothing",
    "None",
    "Its",
    "Each",
    "Two",
    "If",
    "When",
}


def test_a_docstring_starts_with_what_is_done() -> None:
    """A function's starts with a verb; a class, a module or a property may be named by a noun."""
    found = []
    for path in MODULES:
        for node in nodes_of(path):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            is_property = any("property" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))
            wrong = CLAUSES | (NOUNS if isinstance(node, ast.FunctionDef) and not is_property else set())
            first = (ast.get_docstring(node) or "Do").split()[0].strip(".,:;")
            if first in wrong:
                found.append(f"{name(path)}:{getattr(node, 'lineno', 1)} starts with {first}")
    assert found == []


def test_a_class_has_a_name_of_its_own() -> None:
    """A reader who looks for a name finds one class."""
    names = Counter(
        node.name
        for path in MODULES
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [each for each, count in names.items() if count > 1] == []


# What has a reason: `fit`, whose progress is many fields of one record; and objects of other packages.
WITH_RECORDS = "sessions/keras"
NOT_OURS = {"logger", "formatter", "record", "request", "about", "model", "merged", "rewrites", "options", "tempfile"}
NOT_OURS |= {"as_written", "each", "late", "timer", "variable", "session"}
NOT_OURS |= {
    "self._server",
    "self._optimizers[name]",
    "self._taken",
    "_thread",
    "ManagedSession",
    "CollectiveAllReduceExtended",
}


def own_attributes(path: Path) -> set[str]:
    """The attributes that the classes of a file have."""
    classes = [node for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    inside = [node for each in classes for node in ast.walk(each)]
    fields = {
        node.target.id for node in inside if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return fields | {
        node.attr
        for node in inside
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def set_from_outside(path: Path) -> Iterator[tuple[int, str]]:
    """The attributes of objects of other files that a file sets. What an error says is completed on its way up."""
    own = own_attributes(path)
    for node in nodes_of(path):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store) or node.attr in own:
            continue
        owner = ast.unparse(node.value)
        if {owner, owner.partition(".")[0]}.isdisjoint(NOT_OURS) and owner not in {"self", "cls", "error"}:
            yield node.lineno, f"{owner}.{node.attr}"


def test_nobody_sets_an_attribute_of_an_object_of_another_file() -> None:
    files = [path for path in MODULES if room(path) != WITH_RECORDS]
    assert [(name(path), *found) for path in files for found in set_from_outside(path)] == []


# ---------------------------------------------------------------------- tests

TESTS = sorted((ROOT.parent / "tests").rglob("*.py"))
# These begin with an underscore and are public all the same: of named tuples, of `os` and of the Supervisor's session.
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace", "_tf_sess"}
# This file tests the private names of TensorFlow and Keras that trainerd depends on.
WITH_PRIVATE_NAMES = {"tensorflow/test_internals.py"}
# A program that a test trains may be slow on purpose, and waiting.py waits between two looks.
WITH_SLEEP = {f"{folder}/jobs.py" for folder in ("cluster", "process", "systemd")} | {
    "process/estimators.py",
    "waiting.py",
}
PATCHES = {"setattr", "getattr", "delattr", "hasattr", "patch", "object"}


def name_of_test(path: Path) -> str:
    return str(path.relative_to(ROOT.parent / "tests"))


def private_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The private names of others: attributes, what is imported, and what is patched by its name."""
    for node in nodes:
        names = list[str]()
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in PATCHES:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
        for each in names:
            if each.startswith("_") and not each.startswith("__") and each not in PUBLIC:
                yield getattr(node, "lineno", 0), each


def fixed_sleeps(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The calls that sleep for a number of seconds which is written there."""
    for node in nodes:
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("time.sleep", "sleep"):
            continue
        if all(isinstance(each, ast.Constant) for each in node.args):
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(
    ("find", "code", "found"),
    [
        (private_names, "session._attached.save()", "_attached"),
        (private_names, "from trainerd.release.export import _write", "_write"),
        (private_names, "patch.setattr('trainerd.watch.page.server._SECS', 1)", "_SECS"),
        (private_names, "patch.setattr(store, '_free', free)", "_free"),
        (private_names, "spec._replace(a=self._a, b=os._exit, c=kind.__init__)", None),
        (fixed_sleeps, "time.sleep(0.5)", "time.sleep(0.5)"),
        (fixed_sleeps, "time.sleep(chance.uniform(0, 1)); clock.sleep(1)", None),
    ],
)
def test_the_rules_of_tests_find_what_breaks_them(
    find: Callable[[Iterable[ast.AST]], Iterator[tuple[int, str]]], code: str, found: str | None
) -> None:
    assert [each for _, each in find(ast.walk(ast.parse(code)))] == ([found] if found else [])


@pytest.mark.parametrize(("find", "allowed"), [(private_names, WITH_PRIVATE_NAMES), (fixed_sleeps, WITH_SLEEP)])
def test_tests_read_no_private_names_and_do_not_sleep(
    find: Callable[[Iterable[ast.AST]], Iterator[tuple[int, str]]], allowed: set[str]
) -> None:
    """They assert what is seen from outside, and wait for what happens: see tests/README.md."""
    assert not allowed - {name_of_test(path) for path in TESTS}, "a file is gone"
    assert [
        f"{name_of_test(path)}:{line}: {each}"
        for path in TESTS
        if name_of_test(path) not in allowed
        for line, each in find(nodes_of(path))
    ] == []


# ---------------------------------------------------------------------- processes


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


@pytest.mark.parametrize("public", sorted(set(trainerd.__all__) - set(vars(trainerd))))
def test_a_public_name_is_where_it_is_looked_for(public: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = list[str]()

    def import_module(module: str) -> object:
        modules.append(module)
        return SimpleNamespace(__name__=module, **{public: public})

    with monkeypatch.context() as patch:
        patch.setattr(importlib, "import_module", import_module)
        assert trainerd.__getattr__(public) == public
    path = ROOT.parent / (modules[0].replace(".", "/") + ".py")
    names = {getattr(node, "name", None) for node in tree_of(path).body}
    assert public in names
