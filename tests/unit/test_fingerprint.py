"""What a run was trained with, and what happens where that is not what it is trained with now."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import ScriptedSession
from tests.unit.test_loop import Life
from trainerd.checkpoints import manifest
from trainerd.checkpoints.contents.misfit import why_unfit
from trainerd.config import parse as configs
from trainerd.config.fingerprint import FingerprintDifference, differences, of_config
from trainerd.errors import DataError
from trainerd.run.driven import Loop
from trainerd.rundir.paths import RunDirectory

BEFORE = {"input.pipeline": "Range > Batch(batch_size=4)", "job.source": "job.py 1"}
OTHER_BATCH = BEFORE | {"input.pipeline": "Range > Batch(batch_size=8)"}
OTHER_SOURCE = BEFORE | {"job.source": "job.py 2"}


def test_differences_are_sorted_and_tell_what_came_and_went() -> None:
    found = differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "c": "4", "d": "5"})
    assert found == [
        FingerprintDifference("b", "2", None),
        FingerprintDifference("c", "3", "4"),
        FingerprintDifference("d", None, "5"),
    ]
    assert [str(each) for each in found] == ["b: 2 → none", "c: 3 → 4", "d: none → 5"]


READ = {
    "input.pipeline": "[Range | TensorSlice] > Zip > Batch(batch_size=4, drop_remainder=False)",
    "input.content": "5d",
}


@pytest.mark.parametrize(
    "now",
    [
        {"input.pipeline": "[Range | TensorSlice] > Zip > Batch(batch_size=4)"},
        {"input.pipeline": "[Range | TensorSlice] > Zip > Batch"},
        {"input.pipeline": "? > Batch(batch_size=4)", "input.content": "?"},
        {"input.pipeline": "all that another version writes", "input.content": "5e", "input.format": "2"},
        {"input.pipeline": "[Range | TensorSlice] > Zip > Batch(batch_size=4, drop_remainder=False, more=1)"},
    ],
)
def test_what_one_side_could_not_read_is_no_change(now: dict[str, str]) -> None:
    """A TensorFlow that does not tell it any more has not changed the user's data."""
    assert not differences(READ, READ | now) and not differences(READ | now, READ)


@pytest.mark.parametrize(
    "pipeline",
    [
        "[Range | TensorSlice] > Zip > Batch(batch_size=8)",
        "[Range | TensorSlice] > Zip > Batch(drop_remainder=True)",
        "[Range | TensorSlice] > Zip",
        "[Range | TensorSlice] > Zip > PaddedBatch",
        "Range > TensorSlice > Zip > Batch",
    ],
)
def test_what_both_sides_could_read_is_a_change(pipeline: str) -> None:
    [found] = differences(READ, READ | {"input.pipeline": pipeline})
    assert found.moves_position


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        ("A > Batch(batch_size=64, drop=False)", "A > Batch(batch_size=32, drop=False)", "batch_size 64 → 32"),
        ("A > Shuffle(n=1) > Batch(n=2)", "A > Shuffle(n=1) > Batch(n=3)", "Batch n 2 → 3"),
        ("A > Batch(n=2)", "A > Cache > Batch(n=2) > Prefetch(b=-1)", "added Cache, added Prefetch(b=-1)"),
        ("A > Shuffle(b=9) > Batch(n=2)", "A > Batch(n=4)", "removed Shuffle(b=9), n 2 → 4"),
        ("A > Batch(n=2)", "B > Batch(n=2)", "A → B"),
        ("[A | B] > Zip", "A > B > Zip", "[A | B] > Zip → A > B > Zip"),
        ("A > Batch", "A > Batch(n=4)", "n none → 4"),
    ],
)
def test_a_pipeline_is_shown_by_what_differs(before: str, now: str, what: str) -> None:
    assert FingerprintDifference("input.pipeline", before, now).what == what


@pytest.mark.parametrize("state", ["6 tensors", "10 tensors"])
def test_another_optimizer_is_named_first(rundir: RunDirectory, state: str) -> None:
    """If the state has other variables too, accepting the change would not help."""
    was = {"job.optimizer.model/optimizer": "Adam", "job.state": "10 tensors"}
    run(rundir, was, 10).train()
    with pytest.raises(DataError) as caught:
        run(rundir, {"job.optimizer.model/optimizer": "SGD", "job.state": state}, 20).train()
    first, _, advice = str(caught.value).partition("\n")
    assert first == "the optimizer has changed since step 10: optimizer Adam → SGD (model/optimizer)"
    assert ("accept-changes" in advice) == (state == "10 tensors")


def test_an_error_of_a_restore_is_one_line() -> None:
    unresolved = ValueError("Unresolved object in checkpoint (root).opt._variables.2: attributes {\n  name: ...")
    assert why_unfit(unresolved) == "The checkpoint has opt._variables.2, and nothing is at that place now."
    shape = "Received incompatible tensor with shape (2, 1) when attempting to restore variable with shape (3, 1) and "
    assert why_unfit(ValueError(shape + "name dense/kernel.")) == (
        "The variable dense/kernel has the shape (2, 1) in the checkpoint, and (3, 1) now."
    )
    missing = "Object not assigned a value from checkpoint: <tf.Variable 'w:0' shape=() dtype=float32, numpy=0.0>"
    assert why_unfit(AssertionError(missing)) == "The checkpoint has no value for the variable w:0."
    assert why_unfit(ValueError("something else\nmore")) == "something else"


def test_a_config_is_all_of_its_keys_but_the_place(tmp_path: Path) -> None:
    keys = {"entry": "a:b", "logdir": "x", "checkpoint": {"keep_last": 7}}
    found = of_config(configs.parse(keys, folder=tmp_path))
    assert found["config.entry"] == "a:b" and found["config.checkpoint.keep_last"] == "7"
    described = {"logdir": "y", "name": "baseline", "tags": ["new"], "notes": "of today"}
    assert found == of_config(configs.parse(keys | described, folder=tmp_path))
    assert "config.max_steps" not in found and "config.accept_changes" not in found


def run(rundir: RunDirectory, fingerprint: dict[str, str], max_steps: int, **keys: object) -> Life:
    return Life(rundir, {"max_steps": max_steps, **keys}, ScriptedSession(fingerprint=fingerprint))


def test_a_manifest_has_the_fingerprint_and_the_time_trained(rundir: RunDirectory) -> None:
    for steps in (10, 20):
        one = run(rundir, BEFORE, steps)
        one.train()
    first, second = manifest.read(rundir.manifest(10)), manifest.read(rundir.manifest(20))
    assert first.fingerprint.items() >= BEFORE.items() and first.fingerprint["config.entry"] == "a:b"
    assert 0 < first.trained_secs < second.trained_secs


def test_a_change_is_shown_and_the_run_resumes(rundir: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    run(rundir, BEFORE, 10).train()
    with caplog.at_level(logging.INFO):
        run(rundir, OTHER_SOURCE, 20).train()
    assert "changed since step 10: job.source: job.py 1 → job.py 2" in caplog.text
    assert "changed since step 10: config.max_steps: 10 → 20" in caplog.text
    assert "input.pipeline" not in caplog.text


def test_a_dataset_that_changed_under_its_position_is_refused_unless_that_is_accepted(rundir: RunDirectory) -> None:
    run(rundir, BEFORE, 10).train()
    with pytest.raises(DataError, match=r"^the dataset has changed since step 10: batch_size 4 → 8\n") as caught:
        run(rundir, OTHER_BATCH, 20).train()
    assert "--accept-changes" in str(caught.value) and str(rundir.accept_changes) in str(caught.value)
    assert rundir.steps() == [10] and not rundir.quarantine.exists()
    accepting = run(rundir, OTHER_BATCH, 20)
    accepting.run.restore(accept_changes=True)
    Loop(accepting.run, accepting.session, flag=accepting.flag, reporter=accepting.reporter).train()
    run(rundir, OTHER_BATCH, 30).train()
    assert rundir.steps() == [30, 20, 10]


def test_a_program_is_not_shown_options_and_keys_that_it_does_not_have(rundir: RunDirectory) -> None:
    run(rundir, BEFORE, 10).train()
    program = run(rundir, OTHER_BATCH, 20)
    program.run.config = replace(program.run.config, entry="train.py")
    with pytest.raises(DataError, match="accept-changes` before the start") as caught:
        program.run.restore()
    assert "--accept-changes" not in str(caught.value) and "input_position" not in str(caught.value)


def test_variables_that_changed_places_are_refused_unless_that_is_accepted(rundir: RunDirectory) -> None:
    run(rundir, BEFORE, 10).train()
    changed = ScriptedSession(fingerprint=BEFORE, changes=["model/left/kernel: 1 → 2"])
    again = Life(rundir, {"max_steps": 20}, changed)
    with pytest.raises(DataError, match="step 10: model/left/kernel: 1 → 2") as caught:
        again.run.restore()
    assert "--accept-changes" in str(caught.value) and str(rundir.accept_changes) in str(caught.value)
    again.run.restore(accept_changes=True)
    assert changed.step == 10


def test_where_the_variables_are_others_restoring_has_to_tell(rundir: RunDirectory) -> None:
    run(rundir, BEFORE | {"job.state": "1 tensor"}, 10).train()
    other = run(rundir, OTHER_BATCH | {"job.state": "2 tensors"}, 20)
    other.run.restore()  # a fake session takes anything
    assert other.session.step == 10


def test_with_no_position_in_the_checkpoint_it_may_change(rundir: RunDirectory) -> None:
    run(rundir, BEFORE, 10, input_position="restart").train()
    run(rundir, OTHER_BATCH, 20, input_position="restart").train()
    assert rundir.steps() == [20, 10]


def test_accepting_is_of_one_start_and_not_of_the_file() -> None:
    config = configs.parse({"entry": "a:b", "logdir": "x"})
    assert not config.accept_changes and replace(config, accept_changes=True).accept_changes


@pytest.mark.parametrize(
    ("now", "is_told"),
    [
        ({"job.graph": "2"}, True),
        ({"job.graph": "1"}, False),
        ({"job.graph": "2", "job.source": "job.py 2"}, False),
        ({"job.graph": "2", "software.tensorflow": "3"}, False),
        ({"job.graph": "2", "job.source.program": "train.py 1"}, False),
        ({"job.graph": "2", "job.source": ""}, False),
    ],
)
def test_a_job_that_builds_something_else_from_the_same_source_is_reported(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture, now: dict[str, str], is_told: bool
) -> None:
    before = {"job.source": "job.py 1", "job.graph": "1", "software.tensorflow": "2"}
    run(rundir, before, 10).train()
    run(rundir, before | now, 20).train()
    assert ("the order of a set" in caplog.text) == is_told


def test_a_job_of_an_unknown_source_is_not_reported_to_have_the_same(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    run(rundir, {"job.graph": "1", "job.source": ""}, 10).train()
    run(rundir, {"job.graph": "2", "job.source": ""}, 20).train()
    assert "the job builds another graph" not in caplog.text
    run(rundir, {"job.graph": "2", "job.source": "", "job.source.program": "train.py 1"}, 30).train()
    run(rundir, {"job.graph": "3", "job.source": "", "job.source.program": "train.py 1"}, 40).train()
    assert "the job builds another graph" in caplog.text


def test_a_checkpoint_of_an_earlier_version_says_nothing_of_what_was_built(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    run(rundir, {}, 10).train()
    run(rundir, {"job.graph": "1"}, 20).train()
    assert "the order of a set" not in caplog.text
