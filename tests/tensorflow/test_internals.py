"""The parts of TensorFlow and TensorBoard that trainerd uses and that they do not promise to keep."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorflow.core.protobuf import config_pb2

import trainerd
from tests.waiting import wait_for, wait_until_still
from trainerd.checkpoints.contents.object_graph import GRAPH_KEY, entries
from trainerd.checkpoints.format import sstable
from trainerd.config.fingerprint import differences
from trainerd.events.event_file import VOID
from trainerd.history.curves import read_events
from trainerd.sessions.input.iterator_state import Position, set_drawn
from trainerd.sessions.input.iterators import READ_AHEAD, limited
from trainerd.sessions.input.pipeline import dataset_of, describe, fingerprint, stages
from trainerd.sessions.tf1.unfinalized import unfinalized
from trainerd.sessions.tf2.job_session import FunctionSession

# The versions for which everything here was seen to hold. Whether the whole still works is what test_events.py,
# test_event_writer.py and test_tensorboard_page.py say.
VERSIONS = {
    "tensorflow": ("2.18", "2.19", "2.20", "2.21"),
    "tensorboard": ("2.18", "2.19", "2.20", "2.21"),
    "tensorboard-data-server": ("0.7",),
}

SOURCES = sorted(Path(trainerd.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("package", VERSIONS)
def test_the_version_is_one_that_was_looked_at(package: str) -> None:
    version, known = importlib.metadata.version(package), VERSIONS[package]
    assert version.rpartition(".")[0] in known, (
        f"{package} {version} is new here; {', '.join(known)} were looked at. Run all of tests/tensorflow with it. "
        f"What fails in this file names an attribute that has gone, and where trainerd uses it: find its successor. "
        f"When all pass, write {version.rpartition('.')[0]} into VERSIONS, and the range into setup.cfg."
    )


def test_a_summary_writer_has_its_resource(tmp_path: Path) -> None:
    """trainerd/events/event_file.py imports whole events through it."""
    writer = tf.summary.create_file_writer(str(tmp_path))
    assert hasattr(writer, "_resource"), (
        "SummaryWriter._resource has gone: trainerd/events/event_file.py needs the writer's resource for "
        "tf.raw_ops.ImportEvent. Look into tensorflow/python/ops/summary_ops_v2.py for where it is kept now."
    )
    event = Event(step=7, wall_time=1.5, summary=Summary(value=[Summary.Value(tag="loss", simple_value=0.25)]))
    tf.raw_ops.ImportEvent(writer=writer._resource, event=event.SerializeToString())
    writer.close()
    [path] = tmp_path.iterdir()
    assert event in list(read_events(path))


def test_an_iterator_has_its_resource() -> None:
    """trainerd/sessions/input/iterators.py gets batches through it, without a thread between."""
    iterator = iter(tf.data.Dataset.range(3))
    assert hasattr(iterator, "_iterator_resource"), (
        "OwnedIterator._iterator_resource has gone: trainerd/sessions/input/iterators.py needs it for "
        "tf.raw_ops.IteratorGetNextSync. Look into tensorflow/python/data/ops/iterator_ops.py for where it is kept now."
    )
    [batch] = tf.raw_ops.IteratorGetNextSync(
        iterator=iterator._iterator_resource, output_types=[tf.int64], output_shapes=[[]]
    )
    assert batch.numpy() == 0 and next(iterator).numpy() == 1


def test_event_files_are_named_by_their_second_and_their_process(tmp_path: Path) -> None:
    """trainerd/events/ finds them, and tells which is newer, by their names."""
    tf.summary.create_file_writer(str(tmp_path)).close()
    [path] = tmp_path.iterdir()
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\..+\.\d+\.\d+\.v2", path.name), path.name


def test_a_summary_has_the_kind_of_value_that_no_dashboard_shows() -> None:
    """trainerd/events/event_file.py takes points back with it; test_events.py shows that both loaders follow."""
    assert VOID in Summary.Value.DESCRIPTOR.oneofs_by_name["value"].fields[1].containing_type.fields_by_name


def test_tensorboard_leaves_tensorflow_alone_on_request() -> None:
    """trainerd/cli/commands/training/tensorboard.py tells it so.

    Where this fails, all works as before, after some seconds and noise.
    """
    script = (
        "import sys\n"
        "from types import ModuleType\n"
        "from trainerd.cli.commands.training.tensorboard import _WITHOUT_TENSORFLOW as name\n"
        "sys.modules[name] = ModuleType(name)\n"
        "from tensorboard import compat, default\n"
        "default.get_plugins()\n"
        "assert compat.tf.io.gfile.exists('/')\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (
        "TensorBoard no longer looks for the module tensorboard.compat.notf (see tensorboard/compat/__init__.py): "
        f"find out how it is told to do without TensorFlow now.\n{done.stderr}"
    )


def test_the_tensors_of_a_checkpoint_can_be_had_without_writing_them(tmp_path: Path) -> None:
    """trainerd/checkpoints/contents/object_graph.py: the same keys and object graph as `Checkpoint.write` has."""
    v = tf.Variable([1.0, 2.0])
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    parts = {"v": v, "random": tf.random.Generator.from_seed(1), "table": table, "list": [tf.Variable(3)]}
    checkpoint = tf.train.Checkpoint(**parts, iterator=iter(tf.data.Dataset.range(9)))
    found, object_graph = entries(checkpoint)
    checkpoint.write(str(tmp_path / "a"))
    reader = tf.train.load_checkpoint(str(tmp_path / "a"))
    stored = set(reader.get_variable_to_shape_map())
    assert {entry.key for entry in found} | {GRAPH_KEY} == stored, (
        "save_util.serialize_graph_view gives other keys than Checkpoint.write: "
        "trainerd/checkpoints/contents/object_graph.py depends on it. Look into "
        "tensorflow/python/checkpoint/checkpoint.py for how it gathers them now."
    )
    assert reader.get_tensor(GRAPH_KEY) == object_graph
    assert np.array_equal(next(e for e in found if e.key.startswith("v/")).value, [1.0, 2.0])


def test_a_finalized_graph_can_be_opened_again() -> None:
    graph = tf.Graph()
    graph.finalize()
    with unfinalized(graph), graph.as_default():
        tf.constant(1)
    assert graph.finalized and len(graph.get_operations()) == 1, (
        "tf.Graph._unsafe_unfinalize does something else: trainerd/sessions/tf1/unfinalized.py depends on it. Look "
        "into tensorflow/python/training/monitored_session.py for how it opens the graph now."
    )


def test_a_session_makes_callables_of_options() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        a, b = tf.constant(1), tf.constant([2.0, 3.0])
        run = session._make_callable_from_options(config_pb2.CallableOptions(fetch=[b.name, a.name]))
        found = run()
        assert np.array_equal(found[0], [2.0, 3.0]) and found[1] == 1, (
            "Session._make_callable_from_options gives something else: trainerd/sessions/tf1/callables.py depends on "
            "it. Look into tensorflow/python/client/session.py for how make_callable works now."
        )


def test_a_session_explains_errors() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        a = tf.constant(1, name="a")

        def fail() -> None:
            raise tf.errors.AbortedError(None, None, "[[{{node a}}]]")

        with pytest.raises(tf.errors.AbortedError, match="Detected at node") as raised:
            session._do_call(fail)
        assert raised.value.op is a.op, (
            "Session._do_call does something else: trainerd/sessions/tf1/callables.py depends on it. Look into "
            "tensorflow/python/client/session.py for how an error is explained now."
        )


# A name with an underscore in front, of anything but trainerd's own objects.
PRIVATE = re.compile(r"(?<!\bself)(?<!\bcls)(?<!\bsuper\(\))\.(_[a-z]\w*)")
KNOWN = {
    ("events/event_file.py", "_resource"),
    ("programs/estimator/extend.py", "_replace"),  # of a named tuple, documented
    ("sessions/input/iterators.py", "_iterator_resource"),
    ("sessions/input/iterator_state.py", "_iterator_resource"),
    ("sessions/input/pipeline.py", "_dataset"),
    ("sessions/input/pipeline.py", "_inputs"),
    ("system/exit.py", "_run_exitfuncs"),  # Python's, as the next one; tests/process/test_run.py
    ("system/exit.py", "_shutdown"),
    ("sessions/keras/fit_frame.py", "_current_frames"),  # Python's, documented; tests/tensorflow/test_fitting_left.py
    ("workers/training/replicated_session.py", "_iterator_resource"),
    ("workers/training/replicated_keras.py", "_distribute_strategy"),  # test_the_parts_of_a_cluster_are_there
    ("workers/engine/engine.py", "_value"),
    ("workers/engine/engine.py", "_initialize_local_devices"),
    ("system/exit.py", "_exit"),
    ("daemon/keeping_alive.py", "_exit"),
    ("system/fork.py", "_exit"),
    ("checkpoints/contents/object_graph.py", "_iterator_resource"),
    (
        "checkpoints/contents/op_places.py",
        "_get_function",
    ),  # tests/tensorflow/test_unsaved_state.py, as the next import
    ("checkpoints/contents/object_graph.py", "_checkpoint"),  # tests/tensorflow/test_hidden.py, as the next one
    ("checkpoints/contents/object_graph.py", "_update_uid"),
    ("checkpoints/contents/object_graph.py", "_serialize_to_tensors"),  # tests/tensorflow/test_state_readers.py
    ("sessions/tf1/callables.py", "_make_callable_from_options"),
    ("sessions/tf1/callables.py", "_do_call"),
    ("sessions/tf1/unfinalized.py", "_unsafe_unfinalize"),
    ("programs/keras/supervise.py", "_initial_epoch"),
}


def test_there_are_no_others() -> None:
    """Whoever uses another one adds it here, with a test of its own."""
    package = Path(trainerd.__file__).parent
    found = {
        (path.relative_to(package).as_posix(), name)
        for path in SOURCES
        for line in path.read_text(encoding="utf-8").splitlines()
        for name in PRIVATE.findall(_without_text(line))
    }
    assert found <= KNOWN, f"private attributes that no test covers: {sorted(found - KNOWN)}"
    imports = [
        f"{path}: {line}"
        for path in SOURCES
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*(from|import) (tensorflow\.python|keras\.src)", line)
        and path.name not in ("object_graph.py", "stateful_ops.py", "engine.py")
    ]
    assert not imports, f"imports of what TensorFlow does not promise to keep: {imports}"


def test_the_parts_of_a_cluster_are_there() -> None:
    """trainerd/workers/engine/engine.py ends collective operations from outside, has metrics be each worker's own, and
    uses several CPU devices."""
    from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
    from tensorflow.python.eager import context

    parameters = list(signature(CollectiveAllReduceExtended._initialize_local_devices).parameters)
    assert parameters == ["self", "cluster_resolver", "worker_device"], "for several CPU devices in a worker"

    assert callable(context.context().abort_collective_ops) and callable(
        context.context().configure_coordination_service
    ), "tensorflow/python/eager/context.py has other names for them now: find them, for Engine and `abort`."
    assert "timeout_in_ms" in signature(context.context().get_config_key_value).parameters, "for received_sigterm"
    variable = keras.Variable(1.0)
    assert isinstance(variable._value, tf.Variable), "keras/src/backend/tensorflow/core.py keeps it elsewhere now."
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    assert model._distribute_strategy is not None, "keras/src/backend/tensorflow/trainer.py keeps it elsewhere now."
    model._distribute_strategy = None
    assert model.distribute_strategy is tf.distribute.get_strategy()


def _without_text(line: str) -> str:
    """A line of code without its comment and its strings."""
    return re.sub(r'"[^"]*"|\'[^\']*\'', '""', line).partition("#")[0]


def test_fit_begins_at_the_epoch_that_a_callback_sets() -> None:
    """trainerd/programs/keras/supervise.py has it go on there, as keras.callbacks.BackupAndRestore does."""
    seen: list[int] = []
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    begin = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: setattr(model, "_initial_epoch", 3), on_epoch_begin=lambda n, logs: seen.append(n)
    )
    model.fit(np.ones([2, 1]), np.ones([2, 1]), epochs=5, verbose=0, callbacks=[begin])
    assert seen == [3, 4], (
        "Keras's fit no longer looks at Model._initial_epoch: see keras/src/callbacks/backup_and_restore.py for how it "
        "goes on in a later epoch now."
    )


def test_a_dataset_reports_its_inputs_and_settings() -> None:
    """trainerd/sessions/input/pipeline.py describes a dataset's stages with them."""
    dataset = tf.data.Dataset.range(10).shuffle(5).batch(4).shard(2, 1)
    assert hasattr(dataset, "_inputs"), (
        "DatasetV2._inputs() has gone: trainerd/sessions/input/pipeline.py follows it to tell that a dataset has "
        "changed. Look into tensorflow/python/data/ops/dataset_ops.py for how a dataset knows what it is made from now."
    )
    assert describe(dataset) == (
        "Range(start=0, stop=10, step=1) > Shuffle(buffer_size=5) > Batch(batch_size=4, drop_remainder=False) > "
        "Shard(num_shards=2, index=1)"
    ), "the settings of TensorFlow's datasets have other names: see _SETTINGS in trainerd/sessions/input/pipeline.py"


def test_the_entries_of_a_checkpoints_index_can_be_made(tmp_path: Path) -> None:
    """trainerd/checkpoints/format/bundle_writer.py makes them; tests/tensorflow/test_bundle.py reads what it wrote."""
    from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto

    fields = {field.name: field.number for field in BundleEntryProto.DESCRIPTOR.fields}
    expected = {"dtype": 1, "shape": 2, "shard_id": 3, "offset": 4, "size": 5, "crc32c": 6, "slices": 7}
    assert fields == expected, (
        "BundleEntryProto is another: see tensorflow/core/protobuf/tensor_bundle.proto for what trainerd/sessions/"
        "bundle.py has to write now."
    )
    tf.raw_ops.SaveV2(prefix=str(tmp_path / "a"), tensor_names=["x"], shape_and_slices=[""], tensors=[tf.constant(1)])
    assert set(sstable.read((tmp_path / "a.index").read_bytes())) == {b"", b"x"}


def test_an_iterator_reports_its_dataset() -> None:
    dataset = tf.data.Dataset.range(10).shuffle(5)
    assert describe(dataset_of(iter(dataset))) == describe(dataset), (
        "a tf.data.Iterator keeps its dataset elsewhere: trainerd/sessions/input/pipeline.py looks for it there. Look "
        "into tensorflow/python/data/ops/iterator_ops.py for where OwnedIterator has it now."
    )


def test_an_iterator_reports_where_it_is() -> None:
    """trainerd/sessions/input/iterator_state.py reads it from what an iterator saves."""
    options = tf.data.Options()
    options.autotune.enabled = False  # it reads ahead, as far as it gets
    numbers = tf.data.Dataset.range(6).with_options(options)
    apart, fused = numbers.shuffle(6).batch(4).repeat(), numbers.shuffle(6).batch(4).shuffle(2).repeat()
    hint = (
        "a tf.data iterator is saved in another form: trainerd/sessions/input/iterator_state.py reads the epoch of a "
        "repeat and what is left of the shuffles below it. Look into tensorflow/core/data/serialization_utils.cc, and "
        "tensorflow/core/kernels/data/repeat_dataset_op.cc and shuffle_dataset_op.cc."
    )
    iterator = iter(apart)
    assert not Position(iterator).was_read(("Repeat", "Shuffle")), hint
    next(iterator)
    assert Position(iterator).epoch(("Repeat",)) == 0, hint
    for _ in range(5):
        next(iterator)
    assert Position(iterator).epoch(("Repeat",)) == 2, hint
    assert not Position(iterator).has(("Repeat", "Repeat")) and not Position(iterator).has_below((0,))
    iterator = iter(fused)
    for _ in range(7):
        next(iterator)
    position = Position(iterator)
    assert position.has(("Repeat", "Shuffle")) and position.was_read(("Repeat", "Shuffle")), hint
    assert position.epoch(("Repeat",)) in range(3, 7), hint  # the second shuffle reads ahead


def test_how_many_seeds_a_shuffle_has_drawn_can_be_set() -> None:
    one, other = (tf.data.Dataset.range(50).shuffle(50, seed=1) for _ in range(2))
    epochs = [list(one.as_numpy_iterator()) for _ in range(4)]
    set_drawn(other, 2)
    assert list(other.as_numpy_iterator()) == epochs[2], (
        "restoring an iterator does not set its dataset's seeds any more: trainerd/sessions/input/iterator_state.py "
        "does so. Look into tensorflow/core/kernels/data/shuffle_dataset_op.cc for what a shuffle restores now."
    )


def test_an_attribute_that_has_gone_is_no_change_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another TensorFlow may keep what a dataset is made of elsewhere: the resume is not refused for that."""
    batches = tf.data.Dataset.from_tensor_slices([1, 2, 3, 4]).shuffle(4, seed=1).batch(2)
    before = fingerprint([batches])
    del batches._batch_size
    without_size = fingerprint([batches])
    assert "batch_size" not in without_size["input.pipeline"] and not differences(before, without_size)
    for kind in {kind for stage in stages(batches) for kind in type(stage).__mro__ if "_inputs" in vars(kind)}:
        monkeypatch.delattr(kind, "_inputs")
    without_inputs = fingerprint([batches])
    assert without_inputs["input.pipeline"].startswith("? > ") and not differences(before, without_inputs)


def test_tensors_that_a_dataset_hides_are_no_other_data() -> None:
    slices = tf.data.Dataset.from_tensor_slices([1, 2, 3, 4])
    before = fingerprint([slices])
    del slices._tensors
    assert not differences(before, fingerprint([slices]))


def test_breaks_do_not_make_a_position_grow_without_end(tmp_path: Path) -> None:
    """TensorFlow reads twice as far ahead after each break, such as a validation: a checkpoint has what was read."""
    element, read_ahead = 2**16, 2**20  # bytes

    def drawn(number: tf.Tensor) -> tf.Tensor:
        for _ in range(10):  # slower than what reads it
            values = tf.sort(tf.random.stateless_uniform([element // 4], [1, number]))
        return values

    def size(iterator: tf.data.Iterator) -> int:
        variants = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
        return len(tf.io.serialize_tensor(variants).numpy())

    def after_a_break(iterator: tf.data.Iterator) -> int:
        found = wait_until_still(lambda: size(iterator), 0.05, "a dataset that has read ahead")
        for _ in range(found // element + 2):
            next(iterator)
        return found

    dataset = tf.data.Dataset.range(10**9).map(drawn).prefetch(tf.data.AUTOTUNE)
    grows, stays = iter(dataset), iter(limited(dataset, read_ahead))
    wait_for(lambda: after_a_break(grows) > 1.5 * read_ahead, "a position that grows")
    assert max(after_a_break(stays) for _ in range(10)) < read_ahead, (
        "autotune.ram_budget no longer limits what a prefetch holds: trainerd/sessions/input/iterators.py sets it. "
        "Look into tensorflow/core/kernels/data/prefetch_autotuner.cc."
    )
    prefix = tf.train.Checkpoint(iterator=grows).write(str(tmp_path / "position"))
    tf.train.Checkpoint(iterator=stays).read(prefix).assert_consumed()
    assert (next(stays) == next(grows)).numpy().all(), "a position fits, whatever the limit"


def test_a_session_limits_what_its_dataset_reads_ahead_unless_that_is_set() -> None:
    dataset, options = tf.data.Dataset.range(4).batch(2), tf.data.Options()
    options.autotune.ram_budget = 12345
    for each, budget in ((dataset, READ_AHEAD), (dataset.with_options(options), 12345)):
        session = FunctionSession(trainerd.Job(lambda batch: {"sum": tf.reduce_sum(batch)}, dataset=each))
        assert dataset_of(session._iterator).options().autotune.ram_budget == budget
        session.close()
