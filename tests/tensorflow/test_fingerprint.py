"""What a fingerprint tells of a job: its state, its dataset's stages, and random ops that no checkpoint can hold."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import trainerd
from tests.conftest import Fork
from trainerd.checkpoints.contents.keras_variables import optimizer_kinds
from trainerd.config.fingerprint import differences
from trainerd.errors import DataError, EntryError
from trainerd.sessions.input.pipeline import describe, describe_elements, fingerprint
from trainerd.sessions.input.shuffled_indices import shuffled_indices
from trainerd.sessions.tf2.job_session import FunctionSession

RANGE = "Range(start=0, stop=100, step=1)"


def source() -> tf.data.Dataset:
    return tf.data.Dataset.range(100)


@pytest.mark.parametrize(
    ("dataset", "stages"),
    [
        (source().shuffle(10, seed=1), f"{RANGE} > Shuffle(buffer_size=10)"),
        (source().batch(8), f"{RANGE} > Batch(batch_size=8, drop_remainder=False)"),
        (
            source().shard(4, 1).prefetch(3),
            f"{RANGE} > Shard(num_shards=4, index=1) > Prefetch",
        ),
        (
            tf.data.Dataset.zip((source().take(3), tf.data.Dataset.from_tensor_slices([1.0]).repeat())),
            f"[{RANGE} > Take(count=3) | TensorSlice > Repeat(count=-1)] > Zip",
        ),
    ],
)
def test_the_stages_of_a_dataset(dataset: tf.data.Dataset, stages: str) -> None:
    assert describe(dataset) == stages


def test_what_does_not_move_a_position_is_not_in_it() -> None:
    def made(seed: int, calls: int) -> str:
        mapped = source().shuffle(10, seed=seed).map(lambda x: x + calls, num_parallel_calls=calls)
        return describe(mapped.prefetch(calls))

    assert made(1, 2) == made(2, 3)


def test_an_order_of_our_own_says_all_that_a_position_depends_on() -> None:
    def made(size: int = 7, seed: int = 1, batch_size: int = 2) -> str:
        return describe(shuffled_indices(size, seed=seed, batch_size=batch_size).map(lambda x: x + 1).prefetch(1))

    assert made() == made() and made().startswith("shuffled_indices(size=7, seed=1, batch_size=2,")
    assert len({made(), made(size=14), made(seed=14), made(batch_size=3)}) == 4


def test_how_much_the_sources_have_is_reported_and_moves_no_position() -> None:
    def made(count: int) -> dict[str, str]:
        return fingerprint([tf.data.Dataset.from_tensor_slices(tf.zeros([count])).repeat().batch(2)])

    content, change = differences(made(10), made(20))
    assert str(change) == "input.sources: 10 → 20" and not change.moves_position and not change.moves_order
    assert content.name == "input.content" and content.moves_order and not content.moves_position


def test_what_the_data_is_and_which_seeds_it_has_is_reported() -> None:
    def made(*parts: Any, seed: int = 3) -> dict[str, str]:
        return fingerprint([tf.data.Dataset.from_tensor_slices(parts).shuffle(10, seed=seed).batch(2)])

    names = [f"{number}.png" for number in range(300_000)]
    first = made(names, tf.range(300_000))
    assert differences(first, made(names, tf.range(300_000))) == []
    assert [each.name for each in differences(first, made(names[::-1], tf.range(300_000)))] == ["input.content"]
    [seeds] = differences(first, made(names, tf.range(300_000), seed=4))
    assert seeds.name == "input.seeds" and not seeds.moves_order  # of later epochs alone
    ragged = tf.ragged.constant([[1], [2, 3]])
    assert made(ragged)["input.content"] == made(ragged)["input.content"]


def test_data_in_an_order_that_is_drawn_at_each_start_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def program(files: list[str]) -> None:
        count, iterator = tf.Variable(0), iter(tf.data.Dataset.from_tensor_slices(files))

        def step() -> tf.Tensor:
            return count.assign_add(tf.strings.length(next(iterator)))

        checkpoint = tf.train.Checkpoint(count=count, iterator=iterator)
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as session:
            session.run(step)

    program(["a", "b", "c"])
    program(["a", "b", "c"])
    assert "the data has changed" not in caplog.text
    program(["c", "b", "a"])
    assert "the data has changed since step 2" in caplog.text


def test_the_elements() -> None:
    dataset = tf.data.Dataset.from_tensors({"x": tf.zeros([3, 2]), "y": 1}).batch(4)
    assert describe_elements(dataset.element_spec) == "float32[None, 3, 2], int32[None]"
    assert "RaggedTensorSpec" in describe_elements(tf.RaggedTensorSpec([None, None], tf.float32))


def session(batch_size: int = 4, units: int = 3) -> FunctionSession:
    variable = tf.Variable(tf.zeros([units]))
    dataset = source().shuffle(10).batch(batch_size).repeat()
    return FunctionSession(trainerd.Job(lambda batch: None, dataset=dataset, state={"v": variable}))


def test_a_fingerprint_is_the_same_for_the_same_job_and_reports_what_differs() -> None:
    assert session().fingerprint() == session().fingerprint()
    [batch, *_] = found = differences(session().fingerprint(), session(batch_size=5).fingerprint())
    assert batch.moves_position or any(each.moves_position for each in found)
    assert "batch_size=4" in str(found) and "batch_size=5" in str(found)
    [state] = differences(session().fingerprint(), session(units=4).fingerprint())
    assert state.name == "job.state" and not state.moves_position


def test_another_optimizer_of_as_many_variables_is_distinguished() -> None:
    def optimized(optimizer: Any) -> FunctionSession:
        weight = tf.Variable(1.0)
        step = tf.function(lambda: optimizer.apply([weight * 2.0], [weight]))
        return FunctionSession(trainerd.Job(step, state={"w": weight, "o": optimizer}))

    momentum, means = keras.optimizers.SGD(momentum=0.9), keras.optimizers.RMSprop()
    _graph, kind = differences(optimized(momentum).fingerprint(), optimized(means).fingerprint())
    assert str(kind) == "job.optimizer.o: SGD → RMSprop" and kind.is_of_optimizer


def test_optimizers_are_distinguished_by_where_they_stand() -> None:
    class Holder(tf.Module):  # type: ignore[misc]
        def __init__(self, *names: str) -> None:
            super().__init__()
            kinds = {"g": keras.optimizers.Adam, "d": keras.optimizers.SGD}
            for name in names:
                setattr(self, name, kinds[name]())

    class Listed(keras.Model):  # type: ignore[misc]
        def __init__(self, optimizer: Any) -> None:
            super().__init__()
            self.opts = [optimizer]

    assert optimizer_kinds({"h": Holder("g", "d")}) == optimizer_kinds({"h": Holder("d", "g")})
    [gone] = differences(optimizer_kinds(Holder("g", "d")), optimizer_kinds(Holder("g")))
    assert gone.name == "job.optimizer.d" and not gone.is_of_optimizer
    wrapped = keras.optimizers.LossScaleOptimizer(keras.optimizers.AdamW())
    assert optimizer_kinds({"m": Listed(wrapped)}) == {"job.optimizer.m/opts/0": "LossScaleOptimizer(AdamW)"}


def test_an_optimizer_does_not_take_over_the_state_of_another(tmp_path: Path) -> None:
    def program(optimizer: Any) -> None:
        weight = tf.Variable(1.0)
        checkpoint = tf.train.Checkpoint(weight=weight, optimizer=optimizer)
        with trainerd.Supervisor(checkpoint=checkpoint, logdir=str(tmp_path)).managed_session() as running:
            running.run(tf.function(lambda: optimizer.apply([weight * 2.0], [weight])))

    program(keras.optimizers.SGD(momentum=0.9))
    program(keras.optimizers.SGD(0.5, momentum=0.5))
    with pytest.raises(DataError, match=r"changed since step 2: optimizer SGD → RMSprop \(optimizer\)"):
        program(keras.optimizers.RMSprop())
    (tmp_path / "accept-changes").touch()
    program(keras.optimizers.RMSprop())
    program(keras.optimizers.RMSprop())


def step_of(draw: Callable[[], Any]) -> Callable[..., Any]:
    return lambda: {"loss": tf.reduce_sum(draw())}


@pytest.mark.parametrize(
    ("draw", "kind"),
    [
        (lambda: tf.random.normal([2]), "RandomStandardNormal"),
        (lambda: tf.nn.dropout(tf.ones([2]), 0.5), "RandomUniform"),
        (tf.function(lambda: tf.random.shuffle([1.0, 2.0])), "RandomShuffle"),
    ],
)
def test_random_ops_that_lose_their_place_are_reported(
    caplog: pytest.LogCaptureFixture, draw: Callable[[], Any], kind: str
) -> None:
    with caplog.at_level(logging.WARNING):
        FunctionSession(trainerd.Job(step_of(draw)))
    assert kind in caplog.text and "tf.random.Generator" in caplog.text
    with pytest.raises(EntryError, match=f"deterministic = true, and the step draws random numbers with {kind}"):
        FunctionSession(trainerd.Job(step_of(draw)), repeats=True)


def test_random_ops_whose_place_is_saved_are_not(caplog: pytest.LogCaptureFixture) -> None:
    generator = tf.random.Generator.from_seed(1)
    dropout = keras.layers.Dropout(0.5)
    state = {"generator": generator, "dropout": dropout}
    for draw in (lambda: generator.normal([2]), lambda: dropout(tf.ones([2]), training=True)):
        FunctionSession(trainerd.Job(step_of(draw), state=state), repeats=True)
    FunctionSession(trainerd.Job(step_of(lambda: tf.random.stateless_normal([2], [1, 2]))), repeats=True)
    assert "train_step" not in caplog.text


# In a process of its own, in which TensorFlow has not counted far: the next number with another digit is near.
COUNTED = """
import tensorflow as tf
import trainerd
from trainerd.sessions.tf2.job_session import FunctionSession

def made():
    weight = tf.Variable(1.0)
    one, other = lambda: weight * 2.0, lambda: weight + 3.0
    one.__name__ = other.__name__ = "loss"
    parts = [tf.function(one), tf.function(other)]
    job = trainerd.Job(lambda: weight.assign(parts[0]() + parts[1]()), state={"w": weight})
    return FunctionSession(job).fingerprint()["job.graph"]

def count():
    return int(tf.function(lambda: 1.0).get_concrete_function().name.rpartition(b"_")[2])

first = made()
digits = len(str(count()))
while count() < 10**digits - 12:
    pass
assert made() == first == made()
assert count() >= 10**digits
"""


@pytest.mark.long
def test_what_is_built_has_one_digest_whatever_tensorflow_has_counted(fork: Fork, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    program = fork(tmp_path, program="counted.py")
    assert program.end() == 0, program.text
