"""The plan of a proof, and its traces: what is compared, and what is left after a kill."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fake import FakeSession
from trainerd.config import parse as configs
from trainerd.config.schema import Config, TroubleConfig
from trainerd.errors import DataError, JobError, ProofError
from trainerd.loop.contract import Steps
from trainerd.proof.check import rehearse
from trainerd.proof.folders import mirrored
from trainerd.proof.life import in_a_process
from trainerd.proof.plan import InterruptionKind, Marks, plan
from trainerd.proof.trace import BATCH, Rows, Trace, TraceDifference, first_difference, read, steps_marked
from trainerd.proof.verdict import Done, Evidence, interruptions, missing, verdict

NAMES = ["loss", f"{BATCH}0"]


def test_a_plan_is_pauses_and_kills_by_turns_at_boundaries_in_their_order() -> None:
    found = plan(100, 6, seed=1)
    assert [each.kind for each in found] == [InterruptionKind.PAUSE, InterruptionKind.KILL] * 3
    steps = [each.step for each in found]
    assert steps == sorted(set(steps)) and steps[0] >= 1 and steps[-1] < 100
    assert all(each.delay == 0 for each in found if each.kind is InterruptionKind.PAUSE)
    assert plan(100, 6, seed=1) == found != plan(100, 6, seed=2)


def test_a_plan_has_no_more_interruptions_than_there_are_boundaries() -> None:
    assert [each.step for each in plan(4, 10, seed=0)] == [1, 2, 3]


def test_a_plan_comes_in_an_evaluation_and_pauses_past_an_epoch() -> None:
    marks = Marks(evaluations=[40, 80], epochs=[70, 140])
    for seed in range(20):
        for count in (2, 3, 4):
            found = plan(150, count, seed, marks)
            assert len({each.step for each in found}) == count and sorted(found, key=lambda each: each.step) == found
            assert {each.kind for each in found} == {InterruptionKind.PAUSE, InterruptionKind.KILL}
            inside = [each.step for each in found if each.in_evaluation]
            assert len(inside) == 1 and inside[0] in (40, 80)
            assert any(each.kind is InterruptionKind.PAUSE and each.step > 70 for each in found)
            assert all(each.latest == 150 for each in found)
    [only] = plan(150, 1, 0, marks)
    assert only.in_evaluation and only.kind is InterruptionKind.PAUSE


def test_what_has_not_happened_is_said() -> None:
    marks = Marks(evaluations=[10], epochs=[20])
    done = [
        Done(InterruptionKind.PAUSE, 10, 10, in_evaluation=True),
        Done(InterruptionKind.KILL, 31, 25, in_evaluation=False),
    ]
    assert interruptions(done, marks) == "1 pause and 1 kill; 1 in an evaluation, 1 past the end of an epoch"
    assert missing(done, marks, 2, 40) == []
    found = missing(done[:1], Marks(), 4, 40)
    assert [line.split(":")[0] for line in found] == [
        "not interrupted by a kill",
        "not interrupted past the end of an epoch",
    ]
    assert "40 steps was over first" in found[0]
    [late] = missing([done[0], Done(InterruptionKind.KILL, 31, 20, in_evaluation=False)], marks, 2, 40)
    assert late.startswith("not interrupted past the end of an epoch")


def test_what_a_run_marks_is_read_once_for_each_step(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    for what, step in (("evaluation", 20), ("epoch", 5), ("evaluation", 10), ("evaluation", 20)):
        trace.mark(what, step)
    assert steps_marked(tmp_path / "trace", "evaluation") == [10, 20]
    assert steps_marked(tmp_path / "trace", "epoch") == [5] and steps_marked(tmp_path / "trace", "other") == []


def steps(first: int, *losses: float, batch: float = 0.0) -> Steps:
    return Steps(first, NAMES, np.array([[loss, batch + first + i] for i, loss in enumerate(losses)]))


def test_a_trace_is_read_as_it_was_written_by_many_lives(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    one = Trace(path)
    one.append(steps(1, 0.5, math.nan))
    one.append(Steps(3, NAMES, np.zeros([0, 2])))
    one.append(steps(3, 0.25))
    one.close()
    with path.open("ab") as file:
        file.write(b"a part of a row")
    two = Trace(path)
    two.append(steps(3, 0.25, 0.125))
    two.close()
    names, rows = read(path)
    assert names == NAMES
    assert rows[:, 0].tolist() == [1, 2, 3, 3, 4]
    np.testing.assert_array_equal(rows[:, 1], [0.5, math.nan, 0.25, 0.25, 0.125])


def rows(*values: tuple[float, float, float]) -> Rows:
    return np.array(values)


WHOLE = rows((1, 0.5, 11), (2, 0.4, 12), (3, math.nan, 13))


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (WHOLE, None),
        (rows((1, 0.5, 11), (2, 0.4, 12), (2, 0.4, 12), (3, math.nan, 13)), None),
        (rows((1, 0.5, 11), (2, 0.4, 12), (2, 0.3, 12), (3, 1.0, 13)), TraceDifference(2, "loss", 0.4, 0.3)),
        (rows((1, 0.5, 11), (2, 0.3, 22), (3, math.nan, 13)), TraceDifference(2, "the batch", 12, 22)),
        (rows((1, -0.5, 11), (2, 0.4, 12), (3, math.nan, 13)), TraceDifference(1, "loss", 0.5, -0.5)),
        (rows((1, 0.5, 11), (3, math.nan, 13)), TraceDifference(2, "the step", "done", "not done")),
        (rows(*WHOLE.tolist(), (4, 0.1, 14)), TraceDifference(4, "the step", "not done", "done")),
    ],
)
def test_the_first_difference(other: Rows, found: TraceDifference | None) -> None:
    assert first_difference(NAMES, WHOLE, other) == found


def test_zeros_of_either_sign_are_not_the_same() -> None:
    assert first_difference(NAMES, rows((1, 0.0, 1)), rows((1, -0.0, 1))) is not None


def test_a_difference_says_where_and_what() -> None:
    assert str(TraceDifference(7, "loss", 0.5, 0.25)) == "step 7: loss is 0.25, and was 0.5 without a stop"
    assert str(TraceDifference(7, "the batch", 1, 2)) == "step 7: another batch"


OF_BATCH, OF_STEP = TraceDifference(1, "the batch", 1.0, 2.0), TraceDifference(9, "loss", 1.0, 2.0)
OF_END = TraceDifference(40, "the variable w", None, None)
LATE = TraceDifference(30, "loss", 1.0, 2.0)


@pytest.mark.parametrize(
    ("difference", "whole", "builds", "words"),
    [
        (LATE, None, False, "not in the job's state"),
        (OF_END, None, False, "The first difference is at step 40, the end: the variable w differs"),
        (OF_BATCH, None, False, "before either is interrupted, which was at step 20.*other batches.*Range > Batch"),
        (OF_STEP, OF_STEP, False, "without a stop are not the same.*another result for the same batch"),
        (LATE, OF_END, False, "are the same, but the variable w differs"),
        (LATE, LATE, True, "builds something else at each start.*PYTHONHASHSEED"),
    ],
)
def test_a_verdict_says_what_the_evidence_shows_and_advises_what_is_not_done(
    difference: TraceDifference, whole: TraceDifference | None, builds: bool, words: str
) -> None:
    config = configs.parse({"entry": "a:b", "logdir": "x"})
    evidence = Evidence(difference, 20, whole, builds, "Range > Batch", ["beware"])
    found = verdict(evidence, config)
    assert re.search(words, found, re.DOTALL) and ("warnings above" in found) != builds
    advises = evidence.is_of_each_start and not builds
    assert ("Set `deterministic = true` and a `seed`" in found) == advises
    set_already = verdict(evidence, replace(config, deterministic=True, seed=1))
    assert "Set `deterministic" not in set_already and ("is set, so" in set_already) == advises


def fail_as_a_job() -> None:
    """Fail in a life of its own."""
    raise JobError("the job failed in step 30, in my_own_train_step", step=30, sound=True)


def test_the_error_of_a_life_is_that_of_the_proof(tmp_path: Path) -> None:
    with pytest.raises(ProofError, match=r"the run ended by itself, with 70:\n.* in my_own_train_step"):
        in_a_process(fail_as_a_job, tmp_path / "output")


def test_a_mirrored_folder_leads_where_the_other_leads_and_is_separate(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "job"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "x").write_text("x")
    (tmp_path / "beside").write_text("beside")
    place = mirrored(folder, tmp_path / "mirror")
    assert place.stat().st_ino != folder.stat().st_ino
    assert (place / "data" / "x").read_text() == "x" and (place / ".." / ".." / "beside").read_text() == "beside"
    assert sorted(path.name for path in place.iterdir()) == ["data"]


def test_a_mirror_within_the_folder_does_not_mirror_itself(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    place = mirrored(tmp_path, temporary / "mirror")
    assert list((place / "temporary").iterdir()) == []


def test_a_check_fails_where_the_loss_is_nan() -> None:
    config = Config(entry="a:b", logdir="r")
    with pytest.raises(JobError, match=r"loss became nan in step 2, which ends a run\..*stop_on_nan"):
        list(rehearse(FakeSession(loss=lambda step: 1.0 if step == 1 else math.nan), config))
    assert list(rehearse(FakeSession(loss=lambda step: math.nan), replace(config, stop_on_nan=False)))

    class Loses(FakeSession):
        def restore(self, prefix: Path) -> None:
            self.step = 0

    with pytest.raises(DataError, match="step 2 was saved and step 0 was restored"):
        list(rehearse(Loses(), config))
    skips = replace(config, trouble=TroubleConfig(on_nan="skip"))
    assert list(rehearse(FakeSession(loss=lambda step: math.nan), skips))
