"""Going back: what lay ahead stays reachable, whatever ends the process in between."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from tests.unit.test_loop import Life, saved
from trainerd.checkpoints import catalogue, latest, manifest
from trainerd.checkpoints.manifest import About, DamagedError
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import requests
from trainerd.errors import InUseError, NotRunningError, StorageError, UsageError
from trainerd.history import lines, rollback
from trainerd.history.lines import Line
from trainerd.history.rollback import RollbackRequest, RollbackTarget
from trainerd.history.timeline import CheckpointMark, timeline
from trainerd.loop.flag import Request
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Answer, Phase, State, read_state
from trainerd.system import safe_paths

KEEPS = {"checkpoint": {"save_model_steps": 10, "keep_last": 100}}


def write(rundir: RunDirectory, *steps: int, value: float = 1.0) -> None:
    store = CheckpointStore(rundir, policy=Policy(100))
    if before := catalogue.resume_order(rundir):
        store.resumed(before[0])
    for step in steps:
        store.publish(FakeSnapshot(step, value), About("schedule"))


def back(rundir: RunDirectory, step: int, line: int | None = None) -> None:
    RollbackRequest(RollbackTarget(step, line)).write(rundir)
    rollback.finish_at_start(rundir, CheckpointStore(rundir))


def steps_of(rundir: RunDirectory) -> list[int]:
    return sorted(rundir.steps())


def value_at(rundir: RunDirectory, step: int) -> float:
    return float(json.loads(rundir.prefix(step).with_name(f"model.ckpt-{step}.data-00000-of-00001").read_text()))


def test_what_lay_ahead_is_a_line_and_can_be_gone_back_to(odd_rundir: RunDirectory) -> None:
    write(odd_rundir, 10, 20, 30, 40)
    odd_rundir.pin(40).touch()
    back(odd_rundir, 20)
    line = lines.checkpoints_of(odd_rundir, 1)
    assert steps_of(odd_rundir) == [10, 20] and steps_of(line) == [30, 40] and line.pinned() == {40}
    assert catalogue.resume_order(odd_rundir) == [20, 10] and not odd_rundir.rollback.exists()
    write(odd_rundir, 30, 50, value=2.0)
    back(odd_rundir, 40, 1)
    assert steps_of(odd_rundir) == [10, 20, 30, 40] and value_at(odd_rundir, 30) == 1.0
    assert steps_of(lines.checkpoints_of(odd_rundir, 2)) == [30, 50]
    found = latest.newest_verified(odd_rundir, CheckpointStore(odd_rundir))
    assert found is not None and found.step == 40
    assert [(each.number, each.began_at, each.ended_at) for each in lines.lines(odd_rundir)] == [
        (1, 20, 40),
        (2, 20, 50),
    ]


def test_a_line_of_a_line_that_was_left_is_reached_over_their_common_past(rundir: RunDirectory) -> None:
    write(rundir, 10, 20, 30, 40)
    back(rundir, 30)  # line 1: 40
    write(rundir, 50)
    back(rundir, 10)  # line 2: 20, 30, 50
    write(rundir, 15)
    back(rundir, 40, 1)
    assert steps_of(rundir) == [10, 40] and steps_of(lines.checkpoints_of(rundir, 3)) == [15]
    assert [(entry.step, entry.line) for entry in timeline(rundir)] == [
        (10, None), (15, 3), (20, 2), (30, 2), (40, None), (50, 2),
    ]  # fmt: skip


def test_lines_are_shown_and_no_retention_touches_them(rundir: RunDirectory) -> None:
    write(rundir, 10, 20, 30)
    back(rundir, 10)
    store = CheckpointStore(rundir, policy=Policy(1))
    store.resumed(10)
    store.publish(FakeSnapshot(40, 0.0), About("schedule"))
    shown = [(each.step, each.line, each.marks) for each in timeline(rundir)]
    assert (
        shown[:2] == [(20, 1, (CheckpointMark.EARLIER_LINE,)), (30, 1, (CheckpointMark.EARLIER_LINE,))]
        and shown[2][0] == 40
    )


def test_a_step_that_is_not_there_names_the_nearest_and_changes_nothing(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    write(rundir, *range(10, 100, 10))
    with pytest.raises(UsageError, match=r"no checkpoint of step 33. The nearest are 20, 30, 40, 50, 60\b|10, 20, 30"):
        rollback.require_target(rundir, RollbackTarget(33))
    with pytest.raises(UsageError, match=r"no earlier line 2. Lines: none"):
        rollback.require_target(rundir, RollbackTarget(30, 2))
    rundir.index(30).write_text("damaged")
    with pytest.raises(UsageError, match="the checkpoint of step 30 is damaged"):
        rollback.require_target(rundir, RollbackTarget(30))
    for content in ("33", "thirty", '{"target": 3}', "[" * 10_000):
        rundir.rollback.write_text(content)
        rollback.finish_at_start(rundir, CheckpointStore(rundir))
        assert not rundir.rollback.exists() and steps_of(rundir) == list(range(10, 100, 10))
    assert "the rollback was rejected: " in caplog.text
    with pytest.raises(UsageError, match=r"the checkpoint of step 33 was deleted\. `trainerd checkpoints` shows"):
        rollback.go_back(rundir, CheckpointStore(rundir), RollbackRequest(RollbackTarget(33)), 0.0)


def test_a_checkpoint_that_cannot_be_read_after_it_was_moved_is_put_back(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rundir, 10, 20)
    back(rundir, 10)
    store, before = CheckpointStore(rundir), content(rundir)

    def damaged(path: Path, **options: object) -> None:
        raise DamagedError("its checksum does not match")

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "read", damaged)
        with pytest.raises(StorageError, match="the checkpoint of step 20 of line 1 cannot be read after it was moved"):
            rollback.go_back(rundir, store, RollbackRequest(RollbackTarget(20, 1)), 0.0)
    assert content(rundir) == before


def count_operations(monkeypatch: pytest.MonkeyPatch, strike: Callable[[int], None]) -> Callable[[], int]:
    """Call `strike` before each change of a name, each new file and each fsync, with its number."""
    count = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            strike(count - 1)
            return function(*arguments, **options)

        return call

    for name in ("rename", "unlink", "mkdir", "rmdir", "link", "fsync"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    real: Callable[..., int] = os.open
    make = counted(real)

    def opened(path: str, flags: int, *arguments: int, **options: int) -> object:
        return (make if flags & os.O_CREAT else real)(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", opened)
    return lambda: count


def kill_at(nth: int, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Do something in a child, which is killed right before its nth operation."""
    child = os.fork()
    if child == 0:

        def strike(number: int) -> None:
            if number == nth:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            count_operations(monkeypatch, strike)
            do()
        except BaseException:  # else the child would continue as pytest
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred rollbacks take too long with it, and no test cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def prepared(folder: Path, line: int | None) -> RunDirectory:
    """A run of three checkpoints; for a rollback to its first line, one that has gone back once."""
    rundir, like = RunDirectory(folder), folder.with_name("like all")
    if like.exists():
        shutil.copytree(like, folder)
        return rundir
    rundir.create()
    write(rundir, 10, 20, 30)
    if line is not None:
        back(rundir, 10)
        write(rundir, 20, 40, value=2.0)
    shutil.copytree(folder, like)
    return rundir


def operations_of_a_rollback(rundir: RunDirectory, line: int | None, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many operations there are at which it can be struck."""
    with monkeypatch.context() as patch:
        operations = count_operations(patch, lambda number: None)
        back(rundir, TARGETS[line], line)
        assert operations() > 10
        return operations()


TARGETS = {None: 20, 1: 30}
AS_WISHED = {None: {10: 1.0, 20: 1.0}, 1: {10: 1.0, 20: 1.0, 30: 1.0}}
AS_BEFORE = {None: {10: 1.0, 20: 1.0, 30: 1.0}, 1: {10: 1.0, 20: 2.0, 40: 2.0}}


def values(rundir: RunDirectory) -> dict[int, float]:
    """The checkpoints of the present line, verified."""
    for step in rundir.steps():
        manifest.verify(manifest.read(rundir.manifest(step)), rundir.path)
    return {step: value_at(rundir, step) for step in steps_of(rundir)}


def require_readable(rundir: RunDirectory) -> None:
    """Every checkpoint that a reader finds is whole."""
    for entry in timeline(rundir):
        assert CheckpointMark.DAMAGED not in entry.marks
        place = rundir if entry.line is None else lines.checkpoints_of(rundir, entry.line)
        manifest.verify(manifest.read(place.manifest(entry.step)), place.path)


@pytest.mark.usefixtures("no_fsync")
@pytest.mark.parametrize("line", [None, 1])
def test_a_kill_at_any_operation_is_finished_by_a_start_or_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int | None, cli: Cli
) -> None:
    total = operations_of_a_rollback(prepared(tmp_path / "whole", line), line, monkeypatch)
    done = list[dict[int, float]]()
    for nth in range(total):
        rundir = prepared(tmp_path / f"run {nth}", line)
        kill_at(nth, monkeypatch, lambda rundir=rundir: back(rundir, TARGETS[line], line))  # type: ignore[misc]
        require_readable(rundir)
        was_left = rollback.is_under_way(rundir)
        for command in ("checkpoints", "status"):
            assert ("a rollback was cut short" in cli(command, "--logdir", str(rundir.path))[1]) == was_left
        if nth % 2:
            arguments = ["--line", str(line)] if line is not None else []
            said = cli("rollback", str(TARGETS[line]), *arguments, "--logdir", str(rundir.path))
            assert said[0] == 0 and f"went back to step {TARGETS[line]}" in said[1]
            assert was_left == ("was cut short" in said[1])
        else:
            store = CheckpointStore(rundir)
            store.clean()
            rollback.finish_at_start(rundir, store)
        found = latest.newest_verified(rundir, CheckpointStore(rundir))
        is_back = values(rundir) == AS_WISHED[line]
        assert is_back or (values(rundir) == AS_BEFORE[line] and nth % 2 == 0)
        assert found is not None and found.step == (TARGETS[line] if is_back else steps_of(rundir)[-1])
        require_readable(rundir)
        assert len(timeline(rundir)) == (3 if line is None else 5)  # none is lost
        assert not rundir.rollback.exists() or (nth % 2 and not was_left)
        done.append(values(rundir))
    assert AS_WISHED[line] in done and AS_BEFORE[line] in done


def content(rundir: RunDirectory) -> dict[str, bytes | None]:
    """All files and folders of a run directory, but for what is only told."""
    reported = ("run-events.jsonl", "lock", "state.json", ".writing")
    found = {path: path.read_bytes() if path.is_file() else None for path in rundir.path.rglob("*")}
    return {str(path.relative_to(rundir.path)): data for path, data in found.items() if path.name not in reported}


@pytest.mark.usefixtures("no_fsync")
@pytest.mark.parametrize("line", [None, 1])
def test_an_error_at_any_operation_undoes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int | None) -> None:
    total = operations_of_a_rollback(prepared(tmp_path / "whole", line), line, monkeypatch)
    failed = 0
    for nth in range(total):
        rundir = prepared(tmp_path / f"run {nth}", line)
        before, store = content(rundir), CheckpointStore(rundir)
        with monkeypatch.context() as patch:

            def strike(number: int, nth: int = nth) -> None:
                if number == nth:
                    raise OSError(errno.ENOSPC, "No space left on device")

            count_operations(patch, strike)
            try:
                rollback.go_back(rundir, store, RollbackRequest(RollbackTarget(TARGETS[line], line)), 0.0)
            except StorageError:
                failed += 1
                has_failed = True
            else:
                has_failed = False
        if has_failed:
            assert content(rundir) == before and not rollback.is_under_way(rundir), nth
            rollback.finish_at_start(rundir, CheckpointStore(rundir))
            assert content(rundir) == before, "the next start does not go back"
        else:
            assert values(rundir) == AS_WISHED[line], nth
    assert failed > 10


@pytest.mark.usefixtures("no_fsync")
@pytest.mark.parametrize("line", [None, 1])
def test_an_error_that_lasts_leaves_what_was_or_what_the_same_command_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int | None, cli: Cli
) -> None:
    total = operations_of_a_rollback(prepared(tmp_path / "whole", line), line, monkeypatch)
    arguments = [str(TARGETS[line]), *(["--line", str(line)] if line is not None else [])]
    seen, texts = set[str](), list[str]()
    for nth in range(5, total, 4):  # the first ones are those of the command itself
        rundir = prepared(tmp_path / f"run {nth}", line)
        before = content(rundir)
        with monkeypatch.context() as patch:

            def strike(number: int, nth: int = nth) -> None:
                if number >= nth:
                    raise OSError(errno.ENOSPC, "No space left on device")

            count_operations(patch, strike)
            try:
                rollback.go_back(
                    rundir, CheckpointStore(rundir), RollbackRequest(RollbackTarget(TARGETS[line], line)), 0.0
                )
            except StorageError as error:
                texts.append(str(error))
        require_readable(rundir)
        CheckpointStore(rundir).clean()
        if rollback.is_under_way(rundir):
            code, printed = cli("rollback", *arguments, "--logdir", str(rundir.path))
            assert code == 0 and "was cut short" in printed and values(rundir) == AS_WISHED[line]
            seen.add("finished")
        elif content(rundir) == before:
            seen.add("undone")
        else:
            assert values(rundir) == AS_WISHED[line]
    assert "finished" in seen
    twice = next(text for text in texts if "Undoing it failed too" in text)
    assert twice.endswith("The next start, or the next `trainerd rollback`, finishes it.")


# ---------------------------------------------------------------------- a run that trains


def test_a_run_goes_back_between_two_steps_and_trains_on(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50, **KEEPS}, steered=True)
    asked: list[int] = []

    def ask(step: int) -> None:
        if step == 36 and not asked:
            asked.append(step)
            RollbackRequest(RollbackTarget(20), "an id").write(rundir)
            life.flag.raise_for(Request.ROLLBACK)

    life.session.on_step = ask
    assert life.train().phase is Phase.FINISHED
    assert life.session.value == 100.0, "as if it had never been at 36"
    assert saved(rundir) == [(50, "finish"), (40, "schedule"), (30, "schedule"), (20, "schedule"), (10, "schedule")]
    line = lines.checkpoints_of(rundir, 1)
    assert [(step, manifest.read(line.manifest(step)).reason) for step in line.steps()] == [
        (36, "rollback"),
        (30, "schedule"),
    ]
    answers = [state.answer for state in life.states if state.answer is not None]
    assert answers and (answers[0].ids, answers[0].step, answers[0].error) == (["an id"], 20, None)
    assert life.events.begun_at == 20


def test_a_rollback_that_is_asked_for_twice_with_one_id_happens_once(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50, **KEEPS}, steered=True)
    asks = [36, 45]

    def ask(step: int) -> None:
        if asks and step == asks[0]:
            asks.pop(0)
            RollbackRequest(RollbackTarget(20), "an id").write(rundir)
            life.flag.raise_for(Request.ROLLBACK)

    life.session.on_step = ask
    assert life.train().phase is Phase.FINISHED
    assert not asks and [line.number for line in lines.lines(rundir)] == [1] and not rundir.rollback.exists()


def test_a_run_that_cannot_go_back_says_so_and_trains_on(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50, **KEEPS}, steered=True)

    def ask() -> None:
        rundir.rollback.write_text("33")
        life.flag.raise_for(Request.ROLLBACK)

    life.at_step(36, ask)
    assert life.train().phase is Phase.FINISHED
    assert [step for step, _ in saved(rundir)] == [50, 40, 30, 20, 10] and lines.lines(rundir) == []
    assert any("did not go back" in warning and "33" in warning for warning in life.states[-1].warnings)
    assert not rundir.rollback.exists()


def test_a_session_that_cannot_be_restored_in_place_pauses_and_its_next_start_goes_back(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50, **KEEPS})

    def ask() -> None:
        rundir.rollback.write_text("20\n")
        life.flag.raise_for(Request.ROLLBACK)

    life.at_step(36, ask)
    outcome = life.train()
    assert outcome.phase is Phase.PAUSED and "goes back to step 20" in outcome.why
    again = Life(rundir, {"max_steps": 25, **KEEPS})
    again.train()
    assert saved(rundir)[0] == (25, "finish") and steps_of(lines.checkpoints_of(rundir, 1)) == [30, 36]


def test_a_state_that_cannot_be_saved_is_not_left(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50, **KEEPS}, steered=True)

    def ask() -> None:
        rundir.rollback.write_text("20")
        life.flag.raise_for(Request.ROLLBACK)
        disk.setattr(life.run.store.space, "has", lambda needed: False)

    def empty(state: State) -> None:
        if state.warnings:
            disk.undo()

    life.at_step(36, ask)
    with pytest.MonkeyPatch.context() as disk, life.reporter.observed_by([empty]):
        assert life.train().phase is Phase.FINISHED
    assert any("did not go back" in warning for state in life.states for warning in state.warnings)
    assert lines.lines(rundir) == [] and steps_of(rundir)[-1] == 50


# ---------------------------------------------------------------------- the command


def test_the_command_goes_back_and_says_where_the_next_start_resumes(cli: Cli, tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20, 30)
    State(phase=Phase.FINISHED, step=30, error="x").write(rundir.state)
    code, printed = cli("rollback", "20", "--logdir", "run")
    assert code == 0 and "went back to step 20" in printed
    assert "going back to step 20 moves 1 checkpoint after it (30) to line 1. Nothing is deleted." in printed
    assert "The run is finished: it becomes a paused one." in printed
    state = read_state(rundir.state)
    assert state is not None and (state.phase, state.step, state.error) == (Phase.PAUSED, 20, None)
    for _ in range(2):  # the same again, whose checkpoint is in that line no more
        code, printed = cli("rollback", "30", "--line", "1", "--logdir", "run")
        assert code == 0 and "went back to step 30 of line 1" in printed and steps_of(rundir) == [10, 20, 30]
    write(rundir, 40)
    code, printed = cli("rollback", "30", "--line", "1", "--logdir", "run")
    assert code == 64 and "has no checkpoint of step 30" in printed
    code, printed = cli("rollback", "20", "--logdir", "run")
    assert code == 0
    code, printed = cli("rollback", "40", "--logdir", "run")
    assert code == 64 and "An earlier line has one: --line " in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["15"], "The nearest are 10, 20"),
        (["twenty"], "expected a step, `best` or `minimum`"),
        (["best"], "the config names no `best`"),
        (["best", "--metric", "acc"], "no checkpoint has a number for 'acc'. Metrics: loss"),
        (["minimum"], "no checkpoint of this run is a minimum of the loss. Name a step"),
        (["10", "--metric", "loss"], "--metric goes with `best`"),
        (["10", "--line", "4"], "no earlier line 4"),
    ],
)
def test_the_command_says_what_is_wrong(cli: Cli, tmp_path: Path, arguments: list[str], says: str) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    store = CheckpointStore(rundir)
    for step in (10, 20):
        store.publish(FakeSnapshot(step, 1.0), About("schedule", {"loss": 1.0 / step}))
    code, printed = cli("rollback", *arguments, "--logdir", "run")
    assert code == 64 and says in printed and steps_of(rundir) == [10, 20]


@pytest.mark.parametrize(("metric", "step"), [("loss", 20), ("accuracy", 10), ("max loss", 10), ("min accuracy", 20)])
def test_the_best_is_by_the_metric_that_is_named(cli: Cli, tmp_path: Path, metric: str, step: int) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    store = CheckpointStore(rundir)
    for at, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
        store.publish(FakeSnapshot(at, 1.0), About("schedule", {"loss": loss, "accuracy": loss}))
    code, printed = cli("rollback", "best", "--metric", metric, "--logdir", "run")
    assert code == 0 and f"went back to step {step}." in printed


def test_a_second_rollback_waits_for_no_first(cli: Cli, tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        rundir.rollback.write_text("10")
        code, printed = cli("rollback", "10", "--logdir", "run")
    assert code == 75 and "another rollback is requested" in printed


def test_of_two_that_ask_at_once_the_first_is_served_and_the_second_reports_it(rundir: RunDirectory) -> None:
    first = RollbackRequest(RollbackTarget(10), "one")
    first.write(rundir)
    first.write(rundir)  # a command that waits asks again
    with pytest.raises(InUseError, match="another rollback is requested"):
        RollbackRequest(RollbackTarget(20), "other").write(rundir)
    assert rollback.read_request(rundir) == first
    assert [path.name for path in rundir.path.iterdir()] == ["rollback"], "no lock, which may be another user's"
    rundir.rollback.unlink()
    rundir.rollback.mkdir()
    with pytest.raises(StorageError, match="move it"):
        first.write(rundir)


def test_a_request_that_is_served_while_it_is_written_does_not_come_back(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = safe_paths.link

    def served(old: Path, new: Path) -> bool:
        is_made = link(old, new)
        new.unlink()
        return is_made

    monkeypatch.setattr(safe_paths, "link", served)
    RollbackRequest(RollbackTarget(10), "one").write(rundir)
    assert list(rundir.path.iterdir()) == []


def test_a_command_that_fails_does_not_happen_at_the_next_start(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20, 30)
    before = content(rundir)

    def fail(store: CheckpointStore, step: int) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "name", fail)
        code, printed = cli("rollback", "10", "--logdir", "run")
    assert code == 74 and "the disk is full" in printed and content(rundir) == before
    rollback.finish_at_start(rundir, CheckpointStore(rundir))
    assert content(rundir) == before


def test_a_run_that_has_gone_back_reports_it_on_a_disk_without_room_for_its_state(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20)
    State(Phase.PAUSED).write(rundir.state)
    monkeypatch.setattr(State, "write", lambda state, path: (_ for _ in ()).throw(StorageError("the disk is full")))
    code, printed = cli("rollback", "10", "--logdir", "run")
    assert code == 0 and "went back to step 10" in printed and "the disk is full" in printed
    assert steps_of(rundir) == [10]


def test_a_start_that_fails_to_go_back_is_as_before_and_the_next_one_goes_back(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rundir, 10, 20, 30)
    store = CheckpointStore(rundir)
    monkeypatch.setattr(store, "name", lambda step: (_ for _ in ()).throw(StorageError("full")))
    RollbackRequest(RollbackTarget(10)).write(rundir)
    with pytest.raises(StorageError):
        rollback.finish_at_start(rundir, store)
    assert steps_of(rundir) == [10, 20, 30] and rundir.rollback.exists()
    rollback.finish_at_start(rundir, CheckpointStore(rundir))
    assert steps_of(rundir) == [10] and not rundir.rollback.exists()


def test_a_start_answers_the_command_whose_rollback_it_serves(rundir: RunDirectory) -> None:
    """The command may be typed while the process still starts. Without an answer it would ask again."""
    write(rundir, 10, 20, 30)
    given = list[tuple[Sequence[str], int | None, str | None]]()
    for target, request_id in ((10, "one"), (99, "two")):
        RollbackRequest(RollbackTarget(target), request_id).write(rundir)
        rollback.finish_at_start(rundir, CheckpointStore(rundir), lambda *answer: given.append(answer))
    assert given[0] == (["one"], 10, None) and given[1][:2] == (["two"], None)
    assert "has no checkpoint of step 99" in str(given[1][2]) and steps_of(rundir) == [10]


def test_a_run_that_fails_to_go_back_trains_on(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(rundir, {"max_steps": 50, **KEEPS}, steered=True)
    monkeypatch.setattr(life.run.store, "name", lambda step: (_ for _ in ()).throw(StorageError("full")))

    def ask() -> None:
        RollbackRequest(RollbackTarget(20), "an id").write(rundir)
        life.flag.raise_for(Request.ROLLBACK)

    life.at_step(36, ask)
    assert life.train().phase is Phase.FINISHED and life.session.value == 100.0
    answer = life.states[-1].answer_to("an id")
    assert answer is not None and answer.step is None and "full" in str(answer.error)
    assert [step for step, _ in saved(rundir)] == [50, 40, 36, 30, 20, 10] and lines.lines(rundir) == []
    assert not rundir.rollback.exists() and not rollback.is_under_way(rundir)


def test_a_command_whose_process_dies_takes_its_request_back(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        alive = iter([True, True, False])
        monkeypatch.setattr(lock.Holder, "is_alive", lambda holder: next(alive, False))
        code, printed = cli("rollback", "10", "--logdir", "run")
        assert code == 69 and "ended before it went back" in printed and not rundir.rollback.exists()

        def ends(*arguments: object) -> None:
            monkeypatch.setattr(rollback, "is_under_way", lambda rundir: True)
            raise NotRunningError("it ended")

        monkeypatch.setattr(requests, "ask", ends)
        monkeypatch.setattr(lock.Holder, "is_alive", lambda holder: True)
        code, printed = cli("rollback", "10", "--logdir", "run")
    assert code == 69 and f"process {os.getpid()} ended during the rollback. The next start" in printed


@pytest.mark.parametrize(("left", "says"), [("other", "training continues"), ("own", "paused")])
def test_the_command_waits_for_no_request_but_its_own(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, says: str
) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20)
    alive = iter([True] * 4)

    def ask(there: RunDirectory, holder: object, own: str, *rest: object) -> Answer:
        RollbackRequest(RollbackTarget(10), own if left == "own" else left).write(there)
        return Answer([own], 10, None)

    monkeypatch.setattr(requests, "ask", ask)
    monkeypatch.setattr(lock.Holder, "is_alive", lambda holder: next(alive, False))
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        code, printed = cli("rollback", "10", "--logdir", "run")
    assert code == 0 and says in printed and rundir.rollback.exists()
    assert next(alive, False) == (left == "other"), "it waits for the end of the training if its own request is left"


# ---------------------------------------------------------------------- what a second reading found


def test_the_save_before_a_rollback_deletes_no_target(rundir: RunDirectory) -> None:
    """It is the oldest of those that are kept."""
    life = Life(rundir, {"max_steps": 50, "checkpoint": {"save_model_steps": 10, "keep_last": 2}}, steered=True)
    asked: list[int] = []

    def ask(step: int) -> None:
        if step == 36 and not asked:
            asked.append(step)
            RollbackRequest(RollbackTarget(20)).write(rundir)
            life.flag.raise_for(Request.ROLLBACK)

    life.session.on_step = ask
    assert life.train().phase is Phase.FINISHED
    assert life.session.value == 100.0 and [step for step, _ in saved(rundir)] == [50, 40]
    assert steps_of(lines.checkpoints_of(rundir, 1)) == [30, 36]


def test_a_rollback_at_the_first_boundary_is_a_run_that_trains(rundir: RunDirectory) -> None:
    write(rundir, 10, 20, 30)
    life = Life(rundir, {"max_steps": 50, **KEEPS}, steered=True)
    life.run.restore()
    RollbackRequest(RollbackTarget(10)).write(rundir)
    life.flag.raise_for(Request.ROLLBACK)
    life.train()
    assert Phase.TRAINING in [state.phase for state in life.states] and steps_of(rundir)[0] == 10


def test_a_request_does_not_replace_a_rollback_that_is_under_way(rundir: RunDirectory) -> None:
    write(rundir, 10, 20, 30)
    line = Line(1, 10, 30, 0.0, 10)
    rollback.Decided(RollbackTarget(10), rollback.Moves(line, (30, 20), ())).write(rundir)
    line.write(rundir)
    rundir.manifest(20).rename(rundir.line(1) / rundir.manifest(20).name)  # and killed, as version 0.2.0 was
    rundir.rollback.write_text("30")
    rollback.finish_at_start(rundir, CheckpointStore(rundir))
    assert steps_of(rundir) == [10] and not rundir.rollback_moves.exists() and not rundir.rollback.exists()
    require_readable(rundir)
    assert steps_of(lines.checkpoints_of(rundir, 1)) == [20, 30]


@pytest.mark.parametrize("name", ["lines", "lines/1"])
def test_links_are_not_followed(rundir: RunDirectory, tmp_path: Path, name: str) -> None:
    other = RunDirectory(tmp_path / "other")
    other.create()
    write(other, 40)
    (other.path / "line.json").write_text('{"number": 1, "began_at": 10, "ended_at": 40, "at": 0}')
    write(rundir, 10, 20)
    link = rundir.path / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(other.path)
    assert lines.lines(rundir) == [] and [entry.step for entry in timeline(rundir)] == [10, 20]
    with pytest.raises(UsageError, match="no earlier line 1"):
        rollback.require_target(rundir, RollbackTarget(40, 1))
    RollbackRequest(RollbackTarget(10)).write(rundir)
    if name == "lines":
        with pytest.raises(StorageError):
            rollback.finish_at_start(rundir, CheckpointStore(rundir))
    else:
        rollback.finish_at_start(rundir, CheckpointStore(rundir))
        assert steps_of(lines.checkpoints_of(rundir, 2)) == [20]
    assert steps_of(other) == [40] and len(list(other.path.iterdir())) == 5


def test_the_best_of_several_that_are_kept_is_the_best(cli: Cli, tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    store = CheckpointStore(rundir)
    made_with = {"config.checkpoint.best": "min loss", "config.checkpoint.keep_best": "3"}
    for at, loss in ((10, 3.0), (20, 2.0), (30, 1.0), (40, 4.0)):
        store.publish(FakeSnapshot(at, 1.0), About("schedule", {"loss": loss}, fingerprint=made_with))
    code, printed = cli("rollback", "best", "--logdir", "run")
    assert code == 0 and "went back to step 30." in printed
    config = 'entry = "job:job"\nlogdir = "run"\n[checkpoint]\nbest = "max loss"\n'  # which a person has changed since
    (tmp_path / "trainerd.toml").write_text(config)
    code, printed = cli("rollback", "best")
    assert code == 0 and "went back to step 10." in printed


def test_a_step_of_a_thousand_digits_is_none(cli: Cli, tmp_path: Path) -> None:
    write(RunDirectory(tmp_path), 10)
    code, printed = cli("rollback", "9" * 5000, "--logdir", ".")
    assert code == 64 and "expected a step" in printed
