"""What must hold of retention, lines and minima, whatever a run does."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fake import FakeSnapshot
from trainerd.checkpoints import catalogue, latest, retention
from trainerd.checkpoints.manifest import About, Minimum
from trainerd.checkpoints.retention import Point, Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.metric_goals import Best
from trainerd.history import lines, rollback
from trainerd.history.rollback import RollbackRequest, RollbackTarget
from trainerd.history.timeline import timeline
from trainerd.loop.minima.valleys import Valleys, Verdict
from trainerd.rundir.paths import RunDirectory

losses = st.floats(-1e6, 1e6, allow_nan=False)


@given(
    st.lists(st.tuples(losses, st.integers(1, 4)), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 4),
    st.sets(st.integers(1, 20)),
)
def test_retention_keeps_what_its_rules_say(
    found: list[tuple[float, int]], keep_last: int, keep_best: int, keep_minima: int, pinned: set[int]
) -> None:
    points = [
        Point(step, 60.0 * step, {"loss": loss}, None, Minimum(loss, valley))
        for step, (loss, valley) in enumerate(found, start=1)
    ]
    policy = Policy(keep_last, 0.0, Best("loss", is_least=True), keep_best, keep_minima)
    gone = set(retention.deletable(points, current=len(points), policy=policy, pinned=pinned))
    kept = [point for point in points if point.step not in gone]
    assert {point.step for point in points[-keep_last:]} | (pinned & {p.step for p in points}) <= {p.step for p in kept}
    assert min(point.metrics["loss"] for point in points) == min(point.metrics["loss"] for point in kept)
    assert len(kept) <= keep_last + keep_best + keep_minima + len(pinned)
    lowest = retention.lowest_of_valleys(points, keep_minima)
    assert lowest <= {point.step for point in kept} and len(lowest) == min(keep_minima, len({v for _, v in found}))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(1, 3), st.tuples(st.integers(0, 30), st.integers(0, 5))), max_size=12))
def test_no_checkpoint_is_lost_by_going_back_and_forth(history: list[int | tuple[int, int]]) -> None:
    """A number trains so many steps, with a checkpoint after each; a pair goes back to a checkpoint of some line."""
    with TemporaryDirectory() as folder:
        rundir = RunDirectory(Path(folder))
        store, made = CheckpointStore(rundir, policy=Policy(1000)), 0
        step = 0
        for what in history:
            if isinstance(what, int):
                for _ in range(what):
                    step, made = step + 1, made + 1
                    store.publish(FakeSnapshot(step, float(made)), About("schedule"))
                continue
            known = [(entry.step, entry.line) for entry in timeline(rundir)]
            if not known:
                continue
            target, line = known[what[0] % len(known)]
            RollbackRequest(RollbackTarget(target, line)).write(rundir)
            rollback.finish_at_start(rundir, store)
            step = target
            store.resumed(step)
        entries = timeline(rundir)
        assert len(entries) == made, "each is in the present line, or in an earlier one"
        present = [entry.step for entry in entries if entry.line is None]
        assert len(present) == len(set(present)) and (not present or max(present) == step)
        found = latest.newest_verified(rundir, store)
        assert (found.step if found else 0) == step and catalogue.resume_order(rundir)[:1] == [step][: bool(made)]
        assert [line.number for line in lines.lines(rundir)] == list(range(1, len(lines.lines(rundir)) + 1))


@given(st.lists(st.one_of(losses, st.just(math.nan)), max_size=200), st.integers(1, 20), st.integers(1, 30))
def test_a_minimum_is_never_above_what_was_looked_at_in_its_valley(
    curve: list[float], smoothing: int, every: int
) -> None:
    valleys, looked = Valleys(), list[float]()
    for start in range(0, len(curve), every):
        chunk = np.array(curve[start : start + every], np.float64)
        before = valleys = valleys.seen(chunk, smoothing)
        valleys, verdict = valleys.looked_at(start + len(chunk), smoothing=smoothing, prominence=0.1)
        if before.highest is None and before.count >= 3 * smoothing:
            looked.append(before.average)
        if verdict is Verdict.CONFIRMED:
            assert before.lowest == min(looked)
        if valleys.valley != before.valley:
            looked = []
        if verdict is Verdict.LOWEST and before.highest is not None:
            looked = [before.average]
