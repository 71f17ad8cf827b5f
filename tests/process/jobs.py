"""Jobs for the process tests. Copied beside each test's config."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainerd

HERE = Path(__file__).parent


def wait_for_file(name: str) -> None:
    """Say that we wait, and wait until the test makes a file."""
    (HERE / f"{name}.waiting").touch()
    while not (HERE / name).exists():
        time.sleep(0.01)


def counter(by: float = 2.0) -> trainerd.Job:
    """p goes up by 2 a step, or by another number."""
    p = tf.Variable(0.0, dtype=tf.float64)
    return trainerd.Job(lambda: {"p": p.assign_add(by)}, state={"p": p})


def reader(by: float = 2.0) -> trainerd.Job:
    """A `counter` that reads a shuffled input: `digest` depends on each batch so far and on their order."""
    p, digest = tf.Variable(0.0, dtype=tf.float64), tf.Variable(0, dtype=tf.int64)
    dataset = tf.data.Dataset.range(37).shuffle(11, seed=3).repeat().batch(5)

    def train_step(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        digest.assign(digest * 31 + tf.reduce_sum(batch * tf.range(1, 6, dtype=tf.int64)))
        return {"p": p.assign_add(by)}

    return trainerd.Job(train_step, dataset=dataset, state={"p": p, "digest": digest})


def deaf() -> trainerd.Job:
    """Handles signals in ways of its own, as libraries do that it imports."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    signal.set_wakeup_fd(-1)
    return counter()


def exact() -> trainerd.Job:
    """All that a resume must not lose: weights, slots, RNG, a shuffled input in the middle of an epoch."""
    import keras

    keras.utils.set_random_seed(1)
    w = tf.Variable(tf.zeros([8], tf.float64))
    random = tf.random.Generator.from_seed(7)
    optimizer = keras.optimizers.Adam(0.01)
    w32 = keras.Variable(tf.zeros([8]), name="w32")
    optimizer.build([w32])
    dataset = tf.data.Dataset.range(37).shuffle(11, seed=3).repeat().batch(5)

    def train_step(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        noise = random.normal([8], dtype=tf.float64)
        x = tf.cast(tf.reduce_sum(batch * tf.range(1, 6, dtype=tf.int64)), tf.float64)
        w.assign(0.9 * w + noise * x)
        optimizer.apply([tf.cast(w, tf.float32)], [w32])
        return {"loss": tf.reduce_sum(tf.abs(w)), "x": x}

    return trainerd.Job(
        train_step, dataset=dataset, state={"w": w, "w32": w32, "random": random, "optimizer": optimizer}
    )


def paced() -> trainerd.Job:
    """`exact`, whose steps take long while there is a file `slow`."""
    job = exact()
    step = job.train_step

    def wait() -> float:
        time.sleep(0.04 if (HERE / "slow").exists() else 0.0)
        return 0.0

    def train_step(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([tf.py_function(wait, [], tf.float32)]):
            return dict(step(batch))

    return dataclasses.replace(job, train_step=train_step)


def cached() -> trainerd.Job:
    """A shuffle whose order is lost with the memory that it is cached in."""
    p = tf.Variable(0.0, dtype=tf.float64)
    dataset = tf.data.Dataset.range(10).shuffle(10).cache().batch(3).repeat()
    return trainerd.Job(lambda batch: {"p": p.assign_add(2.0)}, dataset=dataset, state={"p": p})


def take_long() -> None:
    """Print, and wait for ever where the test wants that."""
    print("evaluating", flush=True)
    while (HERE / "long").exists():
        time.sleep(0.01)


def evaluated() -> trainerd.Job:
    """`exact`, with an evaluation that may take long."""
    job = exact()

    def evaluate() -> dict[str, float]:
        take_long()
        return {"w": float(tf.reduce_sum(job.state["w"]))}

    return dataclasses.replace(job, evaluate=evaluate)


def summarized() -> trainerd.Job:
    """`exact`, with summaries that may take long."""
    return dataclasses.replace(exact(), summaries=take_long)


def keras_evaluated() -> trainerd.KerasJob:
    """A callback may take long at the end of an epoch."""
    import keras

    job = keras_model()
    slow = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: take_long() if epoch == 2 else None)
    return dataclasses.replace(job, callbacks=[job.callbacks[0], slow])


def graph_evaluated() -> trainerd.GraphJob:
    """`graph`, with an evaluation that may take long."""

    def evaluate(session: Any) -> dict[str, float]:
        take_long()
        return {"one": 1.0}

    return dataclasses.replace(graph(), evaluate=evaluate)


def measured_with_noise() -> trainerd.Job:
    """Its evaluation draws from the generator of the training."""
    job = exact()
    return dataclasses.replace(job, evaluate=lambda: {"noise": float(job.state["random"].normal([]))})


def evaluated_often() -> trainerd.Job:
    """`exact`, with evaluations of up to a fifth of a second that are written down when they end."""
    job = exact()

    def evaluate() -> dict[str, float]:
        figure = float(tf.reduce_sum(job.state["w"]))
        time.sleep((figure % 1.0) / 5)
        with Path("evaluations").open("a") as file:
            file.write(f"{figure!r}\n")
        return {"w": figure}

    return dataclasses.replace(job, evaluate=evaluate)


def on_a_slow_disk() -> trainerd.Job:
    """`counter`, where an fsync takes three milliseconds."""
    real = os.fsync

    def slow(descriptor: Any) -> None:
        time.sleep(0.003)
        real(descriptor)

    os.fsync = slow  # type: ignore[assignment]
    return counter()


def fed_by_workers() -> trainerd.Job:
    """Each step takes a number that processes of the job's own have put into a queue."""
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    numbers = fork.Queue(1)

    def fill() -> None:
        while True:
            numbers.put(1.0)

    for _ in range(2):
        fork.Process(target=fill).start()
    w = tf.Variable(0.0, dtype=tf.float64)

    def train_step() -> dict[str, tf.Tensor]:
        return {"w": w.assign_add(tf.py_function(numbers.get, [], tf.float64))}

    return trainerd.Job(train_step, state={"w": w})


def unsorted() -> trainerd.Job:
    """Its embedding's rows are numbered by the order of a set, which is another at each start."""
    words = "the quick brown fox jumps over the lazy dog and goes on".split()
    vocabulary = list(set(words))
    numbers = tf.constant([vocabulary.index(word) for word in words], tf.int64)
    rows = tf.Variable(tf.cast(tf.range(len(vocabulary)), tf.float64))

    def train_step() -> dict[str, tf.Tensor]:
        rows.assign(0.9 * rows)
        return {"loss": tf.reduce_sum(tf.gather(rows, numbers) * tf.cast(tf.range(len(words)), tf.float64))}

    return trainerd.Job(train_step, state={"rows": rows})


def workers() -> trainerd.Job:
    """A job with processes of its own, forked, as a loader of data has them, and something to do at the end."""
    import atexit
    import multiprocessing

    atexit.register((HERE / f"farewell-{os.getpid()}").touch)

    fork = multiprocessing.get_context("fork")
    for _ in range(3):
        fork.Process(target=time.sleep, args=(1000,), daemon=True).start()
    spare = fork.Process(target=time.sleep, args=(1000,))
    spare.start()
    spare.terminate()  # is not for the trainer
    spare.join()
    return counter()


def say_goodbye() -> None:
    """Some work that is yet to be done when training has ended."""
    threading.main_thread().join()
    (HERE / "goodbye").touch()


def lingering() -> trainerd.Job:
    """Leaves threads and a process running, of which one thread ends by itself."""
    import atexit
    import multiprocessing

    atexit.register((HERE / "farewell").touch)
    threading.Thread(target=time.sleep, args=(1000,), name="my-thread").start()
    threading.Thread(target=say_goodbye).start()
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,), name="my-process").start()
    return counter()


def forking() -> trainerd.Job:
    """An evaluation that forks children, which end in the ways in which children end."""
    job = counter()

    def close() -> None:
        sys.stdout.close()
        raise ValueError

    ends: list[Callable[[], object]] = [lambda: sys.exit(3), lambda: 1 / 0, lambda: os._exit(5), close, lambda: None]

    def evaluate() -> dict[str, float]:
        codes = []
        for end in ends:
            if (child := os.fork()) == 0:
                end()
                return {}
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return {f"child_{number}": code for number, code in enumerate(codes)}

    return dataclasses.replace(job, evaluate=evaluate)


def logging_itself() -> trainerd.Job:
    """A job that sets up logging, whose step fails."""
    import logging.config

    logging.config.dictConfig({"version": 1})
    return raises_in_step()


def slow_step() -> trainerd.Job:
    """A step that waits for a file."""
    p = tf.Variable(0.0)

    def wait() -> float:
        if (HERE / "hang").exists():
            wait_for_file("go")
        return 1.0

    def train_step() -> dict[str, tf.Tensor]:
        return {"p": p.assign_add(tf.ensure_shape(tf.py_function(wait, [], tf.float32), []))}

    return trainerd.Job(train_step, state={"p": p})


def slow_compile() -> trainerd.Job:
    """A step whose tracing waits for a file."""
    p = tf.Variable(0.0)

    def train_step() -> dict[str, tf.Tensor]:
        wait_for_file("go")
        return {"p": p.assign_add(1.0)}

    return trainerd.Job(train_step, state={"p": p})


class _Slow(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Part of the state, whose restoring waits for a file."""

    def serialize(self) -> str:
        return "x"

    def deserialize(self, string_value: str) -> None:
        if (HERE / "slow-restore").exists():
            wait_for_file("restore-go")


def slow_save() -> trainerd.Job:
    """A state that takes its time to be written and restored."""
    from trainerd.checkpoints.format.snapshotter import TensorSnapshot

    write = TensorSnapshot.write

    def slow_write(self: TensorSnapshot, prefix: Path, *more: Any) -> dict[str, str]:
        if (HERE / "slow-save").exists():
            wait_for_file("save-go")
        return write(self, prefix, *more)

    TensorSnapshot.write = slow_write  # type: ignore[method-assign, assignment]
    p = tf.Variable(0.0, dtype=tf.float64)
    return trainerd.Job(lambda: {"p": p.assign_add(1.0)}, state={"p": p, "slow": _Slow()})


def raises_in_step() -> trainerd.Job:
    """Fails in step 30, as a step."""
    p = tf.Variable(0, dtype=tf.int64)

    def my_own_train_step() -> dict[str, tf.Tensor]:
        now = p.assign_add(1)
        tf.debugging.assert_less(now, tf.constant(30, tf.int64), message="p is too large")
        return {"p": now}

    return trainerd.Job(my_own_train_step, state={"p": p})


def raises_in_input() -> trainerd.Job:
    """Fails in step 30, before the step, when the batch is read."""
    p = tf.Variable(0, dtype=tf.int64)

    def check(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_less(x, tf.constant(29, tf.int64), message="bad record")]):
            return tf.identity(x)

    def train_step(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"p": p.assign_add(1)}

    return trainerd.Job(train_step, dataset=tf.data.Dataset.range(100).map(check), state={"p": p})


def raises_in_trace() -> trainerd.Job:
    """Fails when its step is traced."""

    def my_own_train_step() -> None:
        raise RuntimeError("no such layer")

    return trainerd.Job(my_own_train_step)


def nan() -> trainerd.Job:
    """Its loss is NaN in step 30."""
    p = tf.Variable(0, dtype=tf.int64)

    def train_step() -> dict[str, tf.Tensor]:
        now = p.assign_add(1)
        return {"loss": tf.where(now == 30, float("nan"), 1.0)}

    return trainerd.Job(train_step, state={"p": p})


def nan_weights() -> trainerd.Job:
    """A weight becomes NaN in step 30, and no metric tells."""
    p = tf.Variable(0.0)

    def train_step() -> dict[str, tf.Tensor]:
        p.assign(tf.where(p >= 29.0, float("nan"), p + 1.0))
        return {"one": tf.constant(1.0)}

    return trainerd.Job(train_step, state={"p": p})


def generator_input() -> trainerd.Job:
    """An input whose position TensorFlow cannot save."""
    p = tf.Variable(0.0)
    dataset = tf.data.Dataset.from_generator(lambda: iter(range(10**9)), output_signature=tf.TensorSpec([], tf.int64))
    return trainerd.Job(lambda x: {"p": p.assign_add(1.0)}, dataset=dataset, state={"p": p})


def big() -> trainerd.Job:
    """A state of 8 MiB, for small disks."""
    p = tf.Variable(tf.zeros([1 << 21]))
    return trainerd.Job(lambda: {"p": p.assign_add(tf.ones([1 << 21]))[0]}, state={"p": p})


def _reads(batch_size: int) -> trainerd.Job:
    total = tf.Variable(0, dtype=tf.int64)
    dataset = tf.data.Dataset.range(1000).repeat().batch(batch_size)
    return trainerd.Job(
        lambda batch: {"total": total.assign_add(tf.reduce_sum(batch))}, dataset=dataset, state={"total": total}
    )


def reads_fours() -> trainerd.Job:
    """Batches of four."""
    return _reads(4)


def reads_eights() -> trainerd.Job:
    """The same data and state, in batches of eight."""
    return _reads(8)


def steps_program(supervisor: Any) -> None:
    """A loop of its own over a TensorFlow 2 function."""
    p = tf.Variable(0.0, dtype=tf.float64)
    step = tf.function(lambda: {"p": p.assign_add(2.0)})
    supervisor.configure(checkpoint=tf.train.Checkpoint(p=p))
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            session.run(step, steps=10)
            time.sleep(0.001)


def _from_one_process() -> Any:
    """A queue that a process of the job's own fills."""
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    numbers = fork.Queue(1)

    def fill() -> None:
        while True:
            numbers.put(1.0)

    fork.Process(target=fill).start()
    return numbers


def program_whose_step_waits(supervisor: Any) -> None:
    """A loop of its own, whose step takes a number out of a queue; it looks seldom whether to stop, or often."""
    numbers, w = _from_one_process(), tf.Variable(0.0, dtype=tf.float64)
    step = tf.function(lambda: {"w": w.assign_add(tf.py_function(numbers.get, [], tf.float64))})
    supervisor.configure(checkpoint=tf.train.Checkpoint(w=w))
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            for _ in range(10 if (HERE / "looks-often").exists() else 100_000):
                session.run(step)
                time.sleep(0.001)


def program_that_waits_for_its_input(supervisor: Any) -> None:
    """A loop of its own over a graph, which takes a number out of a queue between two steps."""
    tf1, numbers = tf.compat.v1, _from_one_process()
    with tf.Graph().as_default():
        w, x = tf1.get_variable("w", initializer=tf.constant(0.0, tf.float64)), tf1.placeholder(tf.float64, [])
        train_op = tf1.group(w.assign_add(x), tf1.train.get_or_create_global_step().assign_add(1))
        with supervisor.managed_session() as session:
            while not supervisor.should_stop():
                session.run(train_op, {x: numbers.get()})
                time.sleep(0.001)


def graph_program(supervisor: Any) -> None:
    """The seed's loop over the seed's graph."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default():
        p = tf1.get_variable("p", initializer=tf.constant(0.0, tf.float64))
        train_op = tf1.group(p.assign_add(2.0), tf1.train.get_or_create_global_step().assign_add(1))
        tf1.summary.scalar("p", p)
        with supervisor.managed_session() as session:
            while not supervisor.should_stop():
                session.run(train_op)
                session.run(p)


def program_of_rounds(supervisor: Any) -> None:
    """Trains and evaluates for ever, each round in sessions of its own."""
    import trainerd

    tf1 = tf.compat.v1
    with tf.Graph().as_default():
        train_op = tf1.train.get_or_create_global_step().assign_add(1)
        while True:
            with supervisor.managed_session() as session:
                for _ in range(1000):
                    if supervisor.should_stop():
                        break
                    session.run(train_op)
            with tf.Graph().as_default():
                figure = tf.constant(1.0)
                with trainerd.MonitoredSession() as session:
                    session.run(figure)


def program_of_places(supervisor: Any) -> None:
    """Rounds of 20 steps, in the first of which something happens, in the place that a file names, until a pause."""
    tf1 = tf.compat.v1
    place = Path("place").read_text()

    def wait() -> None:
        print("waiting", flush=True)
        wait_for_file("go")

    with tf.Graph().as_default():
        train_op = tf1.train.get_or_create_global_step().assign_add(1)
        while True:
            with contextlib.suppress(KeyError), supervisor.managed_session() as session:
                for _ in range(20):
                    if supervisor.should_stop():
                        break
                    session.run(train_op)
                if place == "inside":
                    evaluate()
                if place == "inside, later":
                    wait()
                    evaluate()
                if place == "thread":
                    thread = threading.Thread(target=evaluate)
                    thread.start()
                    thread.join()
                if place == "training":
                    print("looking", flush=True)
                    while not supervisor.should_stop():
                        time.sleep(0.01)
                if place == "failing":
                    print("failing", flush=True)
                    while not supervisor.should_stop():
                        time.sleep(0.01)
                    raise KeyError("my own mistake")
            if place in ("beside", "training"):
                evaluate()
            if place == "between":
                wait()
                assert supervisor.should_stop()  # it was stopped, whoever stopped it


def unstopped_program(supervisor: Any) -> None:
    """Ends at a pause without ending its session."""
    with tf.Graph().as_default():
        train_op = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        session = supervisor.prepare_or_wait_for_session()
        while not supervisor.should_stop():
            session.run(train_op)


def exporting_program(supervisor: Any) -> None:
    """20 steps, and something after them that takes its time."""
    with tf.Graph().as_default():
        train_op = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        with supervisor.managed_session() as session:
            for _ in range(20):
                session.run(train_op)
    print("files are written", flush=True)
    wait_for_file("export")


def job_with_sessions() -> trainerd.Job:
    """Evaluates in a session of its own, after every step."""
    p = tf.Variable(0.0, dtype=tf.float64)

    def evaluation() -> dict[str, float]:
        with tf.Graph().as_default():
            figure = tf.constant(1.0)
            with trainerd.MonitoredSession() as session:
                print("evaluating", flush=True)
                time.sleep(0.2)
                found = 0.0 if session.should_stop() else float(session.run(figure))
        return {"figure": found}

    return trainerd.Job(lambda: {"p": p.assign_add(2.0)}, state={"p": p}, evaluate=evaluation)


def evaluate() -> None:
    """In a session of its own, until it is told to stop."""
    import trainerd

    with tf.Graph().as_default():
        figure = tf.constant(1.0)
        with trainerd.MonitoredSession() as session:
            print("evaluating", flush=True)
            while not session.should_stop():
                session.run(figure)
                time.sleep(0.01)


def failing_program(supervisor: Any) -> None:
    """Ends with an error of its own after its third step."""
    p = tf.Variable(0.0)
    supervisor.configure(checkpoint=tf.train.Checkpoint(p=p))
    with supervisor.managed_session() as session:
        for _ in range(3):
            session.run(lambda: {"p": p.assign_add(1.0)})
        raise KeyError("my own mistake")


def meddling_program(supervisor: Any) -> None:
    """Wants another folder than the config's."""
    supervisor.configure(logdir="/elsewhere")


def keras_model() -> trainerd.KerasJob:
    """A model with dropout, its epochs of seven steps, and callbacks that remember."""
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    x = tf.reshape(tf.range(28, dtype=tf.float32), [28, 1]) / 28.0
    dataset = tf.data.Dataset.from_tensor_slices((x, 3.0 * x)).shuffle(28, seed=1).batch(4)
    callbacks = [
        keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.9),
        keras.callbacks.CSVLogger("epochs.csv"),
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.002)),
    ]
    return trainerd.KerasJob(model, dataset, (x, 3.0 * x), callbacks=callbacks, epochs=30)


def graph() -> trainerd.GraphJob:
    """A TensorFlow 1 graph with an input that is shuffled, and optimizer slots."""
    tf1 = tf.compat.v1
    found = tf1.Graph()
    with found.as_default():
        batch = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(50).shuffle(50, seed=1).repeat()).get_next()
        w = tf1.get_variable("w", initializer=0.0)
        loss = tf.square(w - tf.cast(batch, tf.float32) / 50.0)
        train_op = tf1.train.AdamOptimizer(0.01).minimize(loss, global_step=tf1.train.get_or_create_global_step())
    return trainerd.GraphJob(found, train_op, metrics={"loss": loss, "batch": batch})


def graph_loop(supervisor: Any) -> None:
    """The same graph, in a loop of its own."""
    job = graph()
    with job.graph.as_default(), supervisor.managed_session() as session:
        while not supervisor.should_stop():
            session.run(job.train_op)


def steps_loop(supervisor: Any) -> None:
    """A loop of its own over a function with data, random numbers and an optimizer."""
    import keras

    w, random = tf.Variable([0.5, 0.5], name="w"), tf.random.Generator.from_seed(1)
    optimizer = keras.optimizers.Adam(0.01)
    batches = iter(tf.data.Dataset.range(50).shuffle(50, seed=1).repeat())

    def step() -> dict[str, tf.Tensor]:
        wanted = tf.cast(next(batches), tf.float32) / 50.0 + random.normal([2], stddev=0.1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(w - wanted))
        optimizer.apply([tape.gradient(loss, w)], [w])
        return {"loss": loss}

    state = tf.train.Checkpoint(w=w, random=random, optimizer=optimizer, batches=batches)
    supervisor.configure(checkpoint=state)
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            session.run(step, steps=1000)


def keras_endless() -> trainerd.KerasJob:
    """A model with dropout whose learning rate follows its validation, for as long as it is let."""
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    x = tf.reshape(tf.range(28, dtype=tf.float32), [28, 1]) / 28.0
    dataset = tf.data.Dataset.from_tensor_slices((x, 3.0 * x)).shuffle(28, seed=1).repeat().batch(5)
    rate = keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.95)
    return trainerd.KerasJob(model, dataset, (x, 3.0 * x), callbacks=[rate], steps_per_epoch=700)


def exact_otherwise() -> trainerd.Job:
    """`exact`, with steps that do a little more."""
    job = exact()

    def train_step(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        found = job.train_step(batch)
        job.state["w"].assign_add(tf.ones([8], tf.float64))
        return dict(found)

    return dataclasses.replace(job, train_step=train_step)


def settable() -> trainerd.Job:
    """A learning rate and a number of its own can be set."""
    import keras

    rate, w = tf.Variable(1.0), keras.Variable(tf.zeros([2]), name="w")
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([w])

    def train_step() -> dict[str, tf.Tensor]:
        optimizer.apply([tf.ones([2]) * rate], [w])
        return {"rate": rate.read_value(), "learning_rate": tf.identity(optimizer.learning_rate)}

    state = {"rate": rate, "w": w, "optimizer": optimizer}
    return trainerd.Job(train_step, state=state, settable={"rate": trainerd.Settable(rate, maximum=1)})


def _numbers(numbers: tf.data.Dataset) -> trainerd.Job:
    """Its loss is NaN after the batch 30, which is the 31st."""
    total = tf.Variable(0.0, dtype=tf.float64)

    def train_step(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        number = batch["index"]
        value = tf.where(number == 30, tf.constant(float("nan"), tf.float64), tf.cast(number, tf.float64))
        return {"loss": total.assign(total / 2 + value)}

    return trainerd.Job(train_step, dataset=numbers.map(lambda number: {"index": number}), state={"total": total})


def poisoned() -> trainerd.Job:
    """A batch ruins all that comes after it."""
    return _numbers(tf.data.Dataset.range(1000))


def never_poisoned() -> trainerd.Job:
    """The same without that batch."""
    return _numbers(tf.data.Dataset.range(1000).filter(lambda number: number != 30))


def released() -> trainerd.KerasJob:
    """A model that is validated, tested and released."""
    import keras

    keras.utils.set_random_seed(1)
    x = tf.random.stateless_normal([64, 4], seed=[1, 2])
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), loss="mse")
    return trainerd.KerasJob(model, (x[:48], y[:48]), validation_data=(x[48:], y[48:]), test_data=x[:8], batch_size=8)


def exports_wrongly() -> trainerd.Job:
    """What it exports is not what it has trained."""
    w = tf.Variable(1.0)

    class Other(tf.Module):  # type: ignore[misc]
        """Another number."""

        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(77.0)

        @tf.function(input_signature=[])
        def __call__(self) -> tf.Tensor:
            return self.w.read_value()

    def export(directory: Path) -> None:
        other = Other()
        tf.saved_model.save(other, str(directory), signatures={"serving_default": other.__call__})

    return trainerd.Job(lambda: {"loss": w.assign_sub(0.01)}, state={"w": w}, export=export)


def valley() -> trainerd.Job:
    """The digits, with a learning rate that rises: the loss falls, and turns up."""
    import keras

    from trainerd.examples import digits

    made = digits.job()
    model = made.state["model"]
    rate = keras.optimizers.schedules.ExponentialDecay(3e-4, decay_steps=500, decay_rate=2.6)
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = loss_of(batch[1], model(batch[0], training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return {"loss": loss}

    return dataclasses.replace(made, train_step=train_step, state={**made.state, "optimizer": optimizer})


def upgraded() -> trainerd.Job:
    """What it computes depends on the Python that it is called with, as between two versions of a library."""
    w = tf.Variable(tf.ones([4], tf.float64))
    factor = 1e-9 if os.environ.get("UPGRADED") == "near" else 0.0
    random = tf.random.Generator.from_seed(7)

    def train_step() -> dict[str, tf.Tensor]:
        w.assign(w * 0.9 + random.normal([4], dtype=tf.float64) * (1 + factor))
        return {"loss": tf.reduce_sum(tf.abs(w))}

    return trainerd.Job(train_step, state={"w": w, "random": random})
