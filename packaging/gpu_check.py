"""Check trainerd on the GPUs of this machine, and print a Markdown table to paste into an issue.

`python gpu_check.py` takes ten minutes at most and leaves nothing behind. It needs an installed trainerd, and no other
file. Each part runs in processes of its own, which load this file as their module. Only those import TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

MINUTES, PART_SECS = 10, 200  # the longest that the check and one process of it may take
BATCH = 64  # examples for each device
MOST_STEPS, WARM_UP = 2**17, 20  # of the large job: how many steps are recorded, and from which on they count
VARIABLE = "GPU_CHECK_PLAN"  # of the environment: the plan of a part, as JSON
FAILED = "FAILED"


@dataclass(frozen=True)
class Plan:
    """The size of the check, or of a part of it."""

    devices: int = 1
    logical: int = 0  # how many devices the CPU is split into; 0 for GPUs
    quick: bool = False

    def size(self, full: int, quick: int) -> int:
        """Return one of two sizes."""
        return quick if self.quick else full


PLAN = Plan(**json.loads(os.environ.get(VARIABLE, "{}")))

# ---------------------------------------------------------------- in the process of a part, which has TensorFlow


def print_machine() -> None:
    """Print the versions, the GPUs and what nvidia-smi prints of them, as JSON."""
    import tensorflow as tf

    build, gpus = tf.sysconfig.get_build_info(), []
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        gpus.append(f"{device.name.removeprefix('/physical_device:')} {details.get('device_name', '')}")
    versions = [f"{name} {version(name.lower())}" for name in ("TensorFlow", "Keras", "trainerd")]
    cuda = f"built for CUDA {build.get('cuda_version')} and cuDNN {build.get('cudnn_version')}"
    smi = ["nvidia-smi", "--query-gpu=index,name,memory.total,driver_version", "--format=csv,noheader"]
    found = shutil.which(smi[0]) is not None
    lines = subprocess.run(smi, capture_output=True, text=True).stdout if found else "nvidia-smi is not there"
    versions = [f"Python {platform.python_version()}", *versions, cuda]
    print(json.dumps({"versions": versions, "devices": gpus, "driver": lines.splitlines()}))


def images(count: int) -> Any:
    """Return so many random images and labels."""
    import numpy as np

    rng, side = np.random.default_rng(1), PLAN.size(32, 8)
    return rng.random((count, side, side, 3), dtype=np.float32), rng.integers(0, 10, count)


def network() -> Any:
    """Return a compiled convolutional network with BatchNormalization and Dropout."""
    import keras

    keras.utils.set_random_seed(1)
    layers, side, filters = keras.layers, PLAN.size(32, 8), PLAN.size(64, 8)
    model = keras.Sequential([keras.Input((side, side, 3)), layers.Conv2D(filters, 3, use_bias=False)])
    for more in (layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(), layers.Conv2D(filters, 3)):
        model.add(more)
    for more in (layers.Flatten(), layers.Dropout(0.3), layers.Dense(10)):
        model.add(more)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def images_job() -> Any:
    """Return the network as a KerasJob with short epochs, whose last batch is smaller."""
    import trainerd

    batch = 8 * PLAN.devices
    return trainerd.KerasJob(network(), data=images(6 * batch - batch // 2), batch_size=batch, epochs=1000)


def print_rate(side: str) -> None:
    """Print the steps per second in the second epoch of `trainerd.keras.fit` ("trainerd") or of Keras ("fit")."""
    import keras
    import tensorflow as tf

    import trainerd

    times = list[float]()
    steps, batch = PLAN.size(500, 20), BATCH * PLAN.devices
    kind = "CPU" if PLAN.logical else "GPU"
    with tf.distribute.MirroredStrategy([f"{kind}:{number}" for number in range(PLAN.devices)]).scope():
        model = network()
    dataset = tf.data.Dataset.from_tensor_slices(images(4 * batch)).batch(batch, drop_remainder=True).cache().repeat()

    def note(*_: object) -> None:
        times.append(time.perf_counter())

    watch = keras.callbacks.LambdaCallback(on_epoch_begin=note, on_epoch_end=note)
    options: dict[str, Any] = {"epochs": 2, "steps_per_epoch": steps, "callbacks": [watch], "verbose": 0}
    if side == "trainerd":
        trainerd.keras.fit(model, dataset, logdir="run", **options)
    else:
        model.fit(dataset, **options)
    print(json.dumps(steps / (times[3] - times[2])))


def large_job() -> Any:
    """Return a job with 64 MiB of weights, and Adam, that records its memory and the time of each step."""
    import keras
    import tensorflow as tf

    import trainerd

    width = PLAN.size(2048, 256)
    model = keras.Sequential([keras.Input((width,)), *(keras.layers.Dense(width, use_bias=False) for _ in range(4))])
    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(model.trainable_variables)
    x = tf.random.stateless_normal((BATCH, width), (1, 2))
    with tf.device("CPU:0"):
        times, last = tf.Variable(tf.zeros([MOST_STEPS], tf.float64)), tf.Variable(0.0)
        steps = tf.Variable(tf.zeros([], tf.int64))

    def train_step() -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - x[:, ::-1]) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        # The clock is read when the loss has come from the device, which then has done all steps before.
        with tf.device("CPU:0"), tf.control_dependencies([last.assign(loss)]):
            times.scatter_nd_update([[steps]], [tf.timestamp()])
            steps.assign_add(1)
        return {"loss": loss}

    threading.Thread(target=record, args=(times, steps), daemon=True).start()
    return trainerd.Job(train_step, state={"model": model, "optimizer": optimizer, "clock": [times, steps, last]})


def record(times: Any, steps: Any) -> None:
    """Record the memory of the first device while the job trains, write `seen.json`, and pause the run."""
    import tensorflow as tf

    samples = list[tuple[float, int, int]]()
    try:
        while int(steps.numpy()) < WARM_UP:
            time.sleep(0.02)
        if not PLAN.logical:
            tf.config.experimental.reset_memory_stats("GPU:0")
        end = time.time() + PLAN.size(16, 5)
        while time.time() < end:
            if not PLAN.logical:
                memory = tf.config.experimental.get_memory_info("GPU:0")
                samples.append((time.time(), memory["current"], memory["peak"]))
            time.sleep(0.002)
        done = int(steps.numpy())
        Path("seen.json").write_text(json.dumps(summary(samples, times.numpy()[:done])), encoding="utf-8")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def summary(samples: Sequence[tuple[float, int, int]], times: Any) -> dict[str, Any]:
    """Return what the checkpoints have cost.

    Args:
      samples: the bytes in use and their peak, each with its time; none on a CPU.
      times: the end of each step.
    """
    import numpy as np

    usual, saves = float(np.median(np.diff(times[WARM_UP:]))), dict[int, float]()
    for manifest in Path("run").glob("model.ckpt-*.json"):  # written last, when all else is on disk
        step = int(manifest.stem.rpartition("-")[2])
        if WARM_UP < step < len(times) - 1:
            saves[step] = manifest.stat().st_mtime
    if not saves:
        raise RuntimeError(f"no checkpoint in {len(times)} steps")
    # What is copied, is copied at the boundary or by the step after it.
    delays = [float(times[step + 1] - times[step - 1] - 2 * usual) for step in saves]
    memory = dict[str, float]()
    if samples:
        at, used, peak = np.array(samples).T
        saving = np.any([(times[step - 1] <= at) & (at <= end) for step, end in saves.items()], axis=0)
        early = at < times[min(saves) - 1]
        memory = {"before": np.median(used[early & ~saving]), "during": used[saving].max()}
        memory |= {
            "after": np.median(used[~early & ~saving]),
            "peak before": peak[early].max(),
            "peak in all": peak[-1],
        }
    return {"step": usual, "delays": delays, "memory": memory}


# ---------------------------------------------------------------- in the process of the command, without TensorFlow


class PartError(Exception):
    """A part failed."""


class Check:
    """The parts of the check. Each returns the lines of its row.

    Args:
      root: an empty folder for all that they write.
      plan: what is run, with the largest number of devices.
    """

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root, self.plan = root, plan
        self.rates: dict[int, float] = {}
        self._deadline = time.monotonic() + 60 * MINUTES

    def run(self, arguments: Sequence[str], devices: int = 1, config: str = "", read: str = "") -> str:
        """Run Python in a new folder that has this file; return what it prints.

        Args:
          arguments: what follows `python`.
          devices: the number of devices.
          config: the text of `trainerd.toml`.
          read: a file in the folder whose text is returned instead.

        Raises:
          PartError: it failed, or took too long.
        """
        seconds = min(PART_SECS, self._deadline - time.monotonic())
        if seconds < 1:
            raise PartError(f"not run, because {MINUTES} minutes are over")
        folder = Path(tempfile.mkdtemp(dir=self.root))
        shutil.copy(__file__, folder / "gpu_check.py")
        (folder / "trainerd.toml").write_text(config, encoding="utf-8")
        env = os.environ | dict.fromkeys(("TMPDIR", "XDG_STATE_HOME", "KERAS_HOME"), str(folder))
        env |= {VARIABLE: json.dumps(asdict(replace(self.plan, devices=devices))), "TF_CPP_MIN_LOG_LEVEL": "2"}
        env |= {"CUDA_VISIBLE_DEVICES": "-1"} if self.plan.logical else {}
        options: dict[str, Any] = {"cwd": folder, "env": env, "text": True, "errors": "replace"}
        options |= dict.fromkeys(("stdout", "stderr"), subprocess.PIPE) | {"stdin": subprocess.DEVNULL}
        with subprocess.Popen([sys.executable, *arguments], start_new_session=True, **options) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise PartError(f"stopped after {seconds:.0f} s") from None
            finally:  # The processes that it has started end too.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode or (read and not (folder / read).exists()):
            raise PartError(f"exit code {process.returncode}\n{output}\n{errors}")
        return (folder / read).read_text(encoding="utf-8") if read else output

    def call(self, function: str, devices: int = 1) -> Any:
        """Call a function of this file in a process of its own; return the JSON that it prints last."""
        return json.loads(self.run(["-c", f"import gpu_check; gpu_check.{function}"], devices).splitlines()[-1])

    def prove(self, devices: int) -> list[str]:
        """Interrupt a run, and compare it with one that is not interrupted."""
        config = (
            f'entry = "gpu_check:images_job"\nlogdir = "run"\ndeterministic = true\nseed = 1\ndevices = {devices}\n'
        )
        steps, interruptions = self.plan.size(40, 12), self.plan.size(3, 2)
        options = ["--steps", str(steps), "--interruptions", str(interruptions)]
        *lines, verdict = self.run(["-m", "trainerd", "prove", *options], devices, config).strip().splitlines()
        return [verdict, *(line for line in lines if line.startswith(("compared: ", "interrupted: ")))]

    def snapshot(self, mode: str) -> list[str]:
        """Train with one kind of snapshot, and measure what its checkpoints cost."""
        config = 'entry = "gpu_check:large_job"\nlogdir = "run"\n[checkpoint]\nminima = false\nkeep_last = 100\n'
        config += f'save_model_secs = {self.plan.size(3, 1)}\nsnapshot = "{mode}"\n'
        seen = json.loads(self.run(["-m", "trainerd", "run"], config=config, read="seen.json"))
        memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in seen["memory"].items())
        step, *delays = (1000 * seconds for seconds in (seen["step"], *seen["delays"]))
        median, worst = statistics.median(delays), max(delays)
        still = f"a step takes {step:.1f} ms; a checkpoint adds {median:.1f} ms to it (median), at most {worst:.1f} ms"
        return [f"device memory: {memory or 'no figure on a CPU'}", f"{still}; {len(delays)} checkpoints"]

    def rate(self, devices: int) -> list[str]:
        """Train in the loop of trainerd and in that of Keras, one after the other."""
        ours, fit = (self.call(f"print_rate({side!r})", devices) for side in ("trainerd", "fit"))
        self.rates[devices] = ours
        return [f"trainerd {ours:.1f} steps/s, Keras's `fit` {fit:.1f} steps/s, ratio {ours / fit:.2f}"]


def attempt(part: Callable[[], list[str]]) -> list[str]:
    """Return the lines of a part, or FAILED and the last lines of the error."""
    try:
        return part()
    except Exception as error:  # The other parts still run.
        first, *more = [line for line in f"{error}".splitlines() if line.strip()] or [repr(error)]
        return [FAILED, first, *more[-6:]]


def rows(check: Check) -> Iterator[tuple[str, list[str]]]:
    """Run all parts; yield the name and the lines of each."""
    most, partial = check.plan.devices, functools.partial
    counts = sorted({2**power for power in range(most.bit_length())} | {most})
    parts: dict[str, Callable[[], list[str]]] = {}
    parts |= {f"interruptions, {named(count)}": partial(check.prove, count) for count in counts}
    parts |= {f'`snapshot = "{mode}"`': partial(check.snapshot, mode) for mode in ("share", "copy")}
    parts |= {f"speed, {named(count)}": partial(check.rate, count) for count in counts}
    # The figures of a quick check mean nothing, so two of its parts may disturb each other.
    with ThreadPoolExecutor(2) as pool:
        lines = pool.map(attempt, parts.values()) if check.plan.quick else map(attempt, parts.values())
        yield from zip(parts, lines, strict=True)
    for count in counts[1:] if check.rates.keys() >= set(counts) else ():
        rate = check.rates[count]
        ratio, examples = rate / check.rates[1], f"{BATCH * count * rate:.0f} examples/s"
        line = f"{examples}; {count * ratio:.2f} × the examples/s and {ratio:.2f} × the steps/s of 1 device"
        yield f"scaling, {named(count)}", [line]


def named(devices: int) -> str:
    """Return the number of devices in words."""
    return f"{devices} device{'s' * (devices != 1)}"


def main() -> int:
    """Run the check; return the exit code."""
    parser = argparse.ArgumentParser(description="Check trainerd on the GPUs of this machine. Prints a Markdown table.")
    parser.add_argument("--devices", type=int, metavar="N", help="use N devices at most (default: all)")
    parser.add_argument("--quick", action="store_true", help="small models and short runs, whose figures mean nothing")
    parser.add_argument("--logical", type=int, metavar="N", help="use N logical CPU devices instead of GPUs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the processes and the folder go too
    for name, number in (("devices", options.devices), ("logical", options.logical)):
        if number is not None and number < 1:
            parser.error(f"--{name}: expected 1 or more, got {number}")
    with tempfile.TemporaryDirectory(prefix=f"trainerd-gpu-check-{os.getpid()}-", ignore_cleanup_errors=True) as root:
        check = Check(Path(root), Plan(logical=options.logical or 0, quick=options.quick))
        try:
            machine = check.call("print_machine()")
        except PartError as error:
            print(f"TensorFlow cannot be used: {error}", file=sys.stderr)
            return 1
        there = options.logical or len(machine["devices"])
        if not there:
            parser.error("TensorFlow finds no GPU. Install tensorflow[and-cuda], or try --logical 2 on a CPU.")
        if (options.devices or 1) > there:
            parser.error(f"--devices: expected {there} or less, as many as there are, got {options.devices}")
        check.plan = replace(check.plan, devices=options.devices or there)
        machine["devices"] = machine["devices"] or [f"{named(there)} of the CPU, logical"]
        print("| what | result |\n|---|---|")
        failed = False
        for name, lines in itertools.chain(machine.items(), rows(check)):
            failed = failed or lines[:1] == [FAILED]
            print(f"| {name} | {'<br>'.join(line.strip().replace('|', '/') for line in lines)} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
elif PLAN.logical:  # TensorFlow makes logical devices only before anything else uses it.
    import tensorflow

    parts = [tensorflow.config.LogicalDeviceConfiguration()] * PLAN.logical
    tensorflow.config.set_logical_device_configuration(tensorflow.config.list_physical_devices("CPU")[0], parts)
