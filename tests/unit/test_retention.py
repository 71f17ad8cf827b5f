"""Which checkpoints may go: pure verdicts, and the store that follows them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from trainerd.checkpoints import checkpoint_state, latest, manifest, retention
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Point, Policy
from trainerd.checkpoints.store import BATCH, CheckpointStore
from trainerd.config.metric_goals import Best
from trainerd.rundir.paths import RunDirectory

HOUR = 3600.0
LOSS = Best("loss", is_least=True)


@pytest.mark.parametrize(
    ("steps", "current", "keep", "gone"),
    [
        ([], 0, 5, []),
        ([1, 2, 3], 3, 5, []),
        ([1, 2, 3], 3, 1, [1, 2]),
        ([10, 20, 30, 40], 40, 2, [10, 20]),
        # The run went back to 20 and was saved at 25: 30 and 40 are not of its line, and stay.
        ([10, 20, 25, 30, 40], 25, 2, [10]),
    ],
)
def test_the_newest_stay(steps: list[int], current: int, keep: int, gone: list[int]) -> None:
    points = [Point(step) for step in steps]
    assert retention.deletable(points, current=current, policy=Policy(keep)) == gone


def test_the_last_ones_of_the_three_newest_complete_calls_stay() -> None:
    points = [Point(step, call=step // 10) for step in (4, 9, 14, 19, 24, 29, 34, 39, 41, 42)]
    assert retention.deletable(points, current=42, policy=Policy(1)) == [4, 9, 14, 24, 34, 41]


def test_one_of_every_so_many_hours_of_training_is_kept_permanently() -> None:
    policy = Policy(keep_last=1, keep_every_hours=2.0)
    points: list[Point] = []
    for half_hours in range(1, 25):
        points.append(Point(half_hours, half_hours * HOUR / 2))
        gone = retention.deletable(points, current=half_hours, policy=policy)
        points = [point for point in points if point.step not in gone]
    assert [point.step / 2 for point in points] == [2, 4, 6, 8, 10, 12]


def test_the_newest_of_the_last_hours_and_days_of_training_is_kept() -> None:
    """A checkpoint every 20 minutes, for 100 hours of training, by the rules that `trainerd init` writes."""
    policy = Policy(keep_last=2, keep_hourly=3, keep_daily=2)
    points: list[Point] = []
    for number in range(300):
        points.append(Point(number, number * HOUR / 3))
        gone = retention.deletable(points, current=number, policy=policy)
        points = [point for point in points if point.step not in gone]
    assert [point.step for point in points] == [287, 293, 296, 298, 299]  # a day has 72, an hour three


def test_the_oldest_of_the_hours_are_deleted_if_all_take_more_than_their_share_of_the_disk() -> None:
    points = [Point(hour, hour * HOUR, size=10) for hour in range(20)]
    policy = Policy(keep_last=2, keep_hourly=10, max_bytes=50)
    kept = {point.step for point in points} - set(retention.deletable(points, current=19, policy=policy, pinned={1}))
    assert kept == {1, 16, 17, 18, 19}
    pins = set(range(8))  # what other rules keep is not deleted for that
    kept = {point.step for point in points} - set(retention.deletable(points, current=19, policy=policy, pinned=pins))
    assert kept == {*pins, 18, 19}


def test_the_best_stays_until_there_is_a_better_one() -> None:
    policy = Policy(keep_last=1, best=LOSS, keep_best=2)
    kept: list[Point] = []
    for step, loss in enumerate([5.0, 3.0, 4.0, 9.0, float("nan"), 3.0, 2.0], start=1):
        kept.append(Point(step, metrics={"loss": loss}))
        gone = retention.deletable(kept, current=step, policy=policy)
        kept = [point for point in kept if point.step not in gone]
    assert [point.step for point in kept] == [2, 7]  # of the two with 3.0 the older


def test_metrics_of_one_evaluation_are_one_of_the_best() -> None:
    """They are in every manifest until the next one."""
    losses = {10: 0.5, 20: 0.1, 21: 0.1, 22: 0.1, 30: 0.2, 31: 0.2, 40: 0.9, 41: 0.9}
    points = [Point(step, metrics={"loss": loss}) for step, loss in losses.items()]
    policy = Policy(keep_last=1, best=LOSS, keep_best=2)
    assert retention.deletable(points, current=41, policy=policy) == [10, 21, 22, 31, 40]


def test_the_greatest_may_be_the_best_and_who_has_no_figure_is_not() -> None:
    points = [Point(1, metrics={"acc": 0.9}), Point(2, metrics={"acc": 0.8}), Point(3), Point(4, metrics={"acc": 0.7})]
    policy = Policy(keep_last=1, best=Best.parse("max acc"))
    assert retention.deletable(points, current=4, policy=policy) == [2, 3]


@pytest.mark.parametrize("seed", range(50))
def test_what_must_stay_stays_whatever_the_policy(seed: int) -> None:
    rng = random.Random(seed)
    steps = rng.sample(range(1000), rng.randint(1, 40))
    points = [Point(step, step * rng.random() * HOUR, {"loss": rng.random()}, size=9) for step in steps]
    current, pinned = rng.choice(steps), set(rng.sample(steps, rng.randint(0, len(steps) // 2)))
    policy = Policy(
        rng.randint(1, 5),
        rng.choice([0.0, 10.0]),
        rng.choice([None, LOSS]),
        rng.randint(1, 3),
        keep_hourly=rng.randint(0, 9),
        max_bytes=rng.choice([None, 100]),
    )
    gone = set(retention.deletable(points, current=current, policy=policy, pinned=pinned))
    assert current not in gone and not gone & pinned and all(step < current for step in gone)
    line = [point for point in points if point.step <= current]
    if policy.best:
        assert min(line, key=lambda point: point.metrics["loss"]).step not in gone
    again = [point for point in points if point.step not in gone]
    assert retention.deletable(again, current=current, policy=policy, pinned=pinned) == []


@pytest.mark.parametrize("text", ["loss", "least loss", "min", "min ", "min a >= b", ""])
def test_what_is_not_a_best(text: str) -> None:
    with pytest.raises(ValueError, match="min NAME"):
        Best.parse(text)


def gone_back(rundir: RunDirectory) -> CheckpointStore:
    """A run that went from 300 back to 100, and on to 150 and 250; 200 would be of another past."""
    first = CheckpointStore(rundir, policy=Policy(9))
    for step in (100, 200, 300):
        save(first, step)
    rundir.checkpoint_state.write_bytes(StateFile(100, (100, 200, 300)).to_bytes(rundir.basename))
    second = CheckpointStore(rundir, policy=Policy(9))
    second.resumed(100)
    return second


def test_what_a_run_left_behind_goes_as_it_is_passed(rundir: RunDirectory) -> None:
    second = gone_back(rundir)
    save(second, 150)
    assert rundir.steps() == [300, 200, 150, 100]
    save(second, 250)
    assert rundir.steps() == [300, 250, 150, 100]
    save(second, 310)
    assert rundir.steps() == [310, 250, 150, 100]
    save(second, 310)
    assert manifest.read(rundir.manifest(310)).before == 250, "saved again, it has the same past"


def test_what_a_programs_saver_wrote_in_between_was_not_left_behind() -> None:
    points = [Point(20), Point(25), Point(30, before=20), Point(40, before=30)]
    assert retention.deletable(points, current=40, policy=Policy(9)) == []


def test_a_start_does_not_fall_back_to_what_the_run_left_behind(rundir: RunDirectory) -> None:
    second = gone_back(rundir)
    rundir.pin(200).touch()
    save(second, 150)
    save(second, 250)
    rundir.prefix(250).with_name("model.ckpt-250.index").write_bytes(b"damaged")
    for _ in range(2):  # nor the start after that one
        found = latest.newest_verified(rundir, CheckpointStore(rundir))
        assert found is not None and found.step == 150
    assert 200 in rundir.steps(), "it is pinned"


def save(store: CheckpointStore, step: int, **metrics: float) -> None:
    store.publish(FakeSnapshot(step, 2.0 * step), About("test", metrics))


def test_a_pinned_checkpoint_stays_until_it_is_unpinned(rundir: RunDirectory) -> None:
    store = CheckpointStore(rundir, policy=Policy(1))
    save(store, 1)
    rundir.pin(1).touch()
    save(store, 2)
    save(store, 3)
    assert rundir.steps() == [3, 1] and rundir.pinned() == {1}
    rundir.pin(1).unlink()
    save(store, 4)
    assert rundir.steps() == [4]
    assert not [name for name in os.listdir(rundir.path) if "ckpt-1" in name]


def test_a_pin_that_comes_while_its_checkpoint_is_being_deleted_counts(rundir: RunDirectory) -> None:
    """The store looks at the pins once more when the manifest is aside: nothing was deleted yet."""

    def pin_late(stage: str) -> None:
        if stage == "retain":
            rundir.pin(1).touch()

    save(CheckpointStore(rundir), 1)
    save(CheckpointStore(rundir, policy=Policy(1), at=pin_late), 2)
    assert rundir.steps() == [2, 1]


def test_a_pinned_checkpoint_whose_step_is_reached_again_is_put_aside(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(rundir)
    save(store, 1)
    save(store, 2)
    rundir.pin(2).touch()
    before = {path.name: path.read_bytes() for path in rundir.path.glob("model.ckpt-2.*")}
    store.publish(FakeSnapshot(2, 99.0), About("again"))
    assert {path.name: path.read_bytes() for path in rundir.replaced.iterdir()} == before
    assert "was pinned and was trained again" in caplog.text
    assert manifest.read(rundir.manifest(2)).reason == "again" and not rundir.pinned()
    for number in (2, 3):
        rundir.pin(2).touch()
        later = {path.name: path.read_bytes() for path in rundir.path.glob("model.ckpt-2.*")}
        store.publish(FakeSnapshot(2, 99.0 + number), About("again"))
        kept = rundir.replaced / str(number)
        assert {path.name: path.read_bytes() for path in kept.iterdir()} == later
    first = {path.name: path.read_bytes() for path in rundir.replaced.iterdir() if path.is_file()}
    assert first == before


def test_many_go_a_few_at_a_time_with_few_fsyncs_and_listings(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 101):
        save(CheckpointStore(rundir, policy=Policy(1000)), step)
    fsyncs, listings, listed = list[Path](), list[object](), os.listdir

    def look(path: Path) -> list[str]:
        listings.append(path)
        return listed(path)

    monkeypatch.setattr("trainerd.checkpoints.checkpoint_files.fsync_directory", fsyncs.append)
    monkeypatch.setattr("trainerd.rundir.paths.os.listdir", look)
    store = CheckpointStore(rundir, policy=Policy(5))
    save(store, 101)
    assert len(list(rundir.path.glob("*.json"))) == 101 - BATCH, "a bounded number goes at each save"
    assert checkpoint_state.read(rundir) == StateFile(101, (97, 98, 99, 100, 101)), "none of the others is listed"
    looked = len(listings)
    before = store.progress()
    while store.tidy():
        assert store.progress() != before, "a deletion is progress"
        before = store.progress()
    assert len(listings) == looked and len(fsyncs) <= 100 // BATCH + 2
    assert rundir.steps() == [101, 100, 99, 98, 97]


def test_manifests_are_read_once(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 50):
        save(CheckpointStore(rundir, policy=Policy(100)), step)
    store, read = CheckpointStore(rundir, policy=Policy(100)), []

    def read_regular(path: Path, limit: int) -> bytes:
        read.append(path.name)
        return path.read_bytes()

    monkeypatch.setattr(manifest, "read_regular", read_regular)
    for step in range(50, 60):
        save(store, step)
    assert len(read) == len(set(read)) == 49


def test_a_program_of_tensorflows_alone_gets_the_list_of_those_that_it_may_delete(rundir: RunDirectory) -> None:
    store = CheckpointStore(rundir, policy=Policy(2, best=Best("loss", is_least=True)))
    store.publish(FakeSnapshot(1, 0.0), About("test", {"loss": 0.1}))
    for step in (2, 3, 4):
        store.publish(FakeSnapshot(step, 0.0), About("test", {"loss": 1.0}))
    written = checkpoint_state.read(rundir)
    assert rundir.steps() == [4, 3, 1] and written == StateFile(4, (3, 4))


def test_what_a_programs_own_saver_has_listed_stays_listed_while_it_is_there(rundir: RunDirectory) -> None:
    store = CheckpointStore(rundir, policy=Policy(3))
    store.publish(FakeSnapshot(1, 0.0), About("test"))
    for step in (5, 6):
        rundir.index(step).touch()
    rundir.checkpoint_state.write_bytes(StateFile(6, (4, 5, 6)).to_bytes(rundir.basename))
    store.publish(FakeSnapshot(7, 0.0), About("test"))
    assert checkpoint_state.read(rundir) == StateFile(7, (5, 6, 7))
