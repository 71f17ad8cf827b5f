"""From a config to a session that is ready to be restored or trained. Imports TensorFlow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.config.schema import Config
from trainerd.errors import EntryError
from trainerd.history import run_job
from trainerd.job.definition import GraphJob, Job, KerasJob, Program, Scheduled
from trainerd.job.devices import set_devices
from trainerd.job.entry import import_module, load_job
from trainerd.job.source import source_of
from trainerd.loop.contract import Session
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.experiment.specs import TrainSpec
from trainerd.programs.experiment.train_and_evaluate import TrainAndEvaluate
from trainerd.run.host import default_logdir
from trainerd.script.run import first_session
from trainerd.sessions.tf1.job_session import GraphJobSession
from trainerd.sessions.tf2.devices import strategy
from trainerd.sessions.tf2.job_session import FunctionSession
from trainerd.system.absolute import absolute
from trainerd.workers.engine.engine import Engine

AnyJob = Job | GraphJob | KerasJob

# A job configures TensorFlow at the top of its module or in its function, so nothing here uses TensorFlow before it.
# If there is no GPU, TensorFlow logs that as an error when it first looks for one: it looks now, while its messages are
# not shown. If there is one, the job may still choose it with CUDA_VISIBLE_DEVICES, which TensorFlow then reads.
if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))):
    tf.config.list_physical_devices()


def open_entry(
    config: Config, engine: Engine | None = None, wrap: Callable[[Job], Job] = lambda job: job
) -> Session | Program:
    """Build the job that the config names, and a session for it; or find the function that writes its own loop.

    Args:
      config: what to build.
      engine: has several workers train it together; None if this process trains alone.
      wrap: maps the job to the one that several workers train.

    Raises:
      EntryError: the job cannot be had, or cannot be trained.
    """
    if engine is not None:
        return _replicated(config, engine, wrap)
    job = _load(config)
    if isinstance(job, Scheduled):
        return _program_of(job, config)
    return job if isinstance(job, Program) else _session_of(job, config)


def _replicated(config: Config, engine: Engine, wrap: Callable[[Job], Job]) -> Session:
    from trainerd.workers.training.replicated_keras import ReplicatedKerasSession
    from trainerd.workers.training.replicated_session import ReplicatedSession

    with engine.scope():
        job = _load(config)
    if not isinstance(job, Job | KerasJob):
        raise EntryError(
            f"entry = {config.entry!r}: several workers train a trainerd.Job or KerasJob together, and this is of "
            f"type {type(job).__name__}. See docs/many-machines.md."
        )
    options = _options(config) | {"engine": engine, "wrap": wrap}
    if isinstance(job, KerasJob):
        return ReplicatedKerasSession(job, writes=config.rank == 0, max_steps=config.max_steps, **options)
    return ReplicatedSession(job, **options)


def open_session(
    config: Config, wrap: Callable[[Job], Job] = lambda job: job, *, trial_steps: int | None = None
) -> Session:
    """Build the job that the config names, and a session for it, to try it.

    A script runs up to its first `fit`. Callbacks of a Keras model that write files are left out, since those files
    belong to the run.

    Args:
      config: what to build.
      wrap: maps the job to the one that the session trains; a GraphJob is not mapped.
      trial_steps: the steps after which an epoch of a Keras model ends, with a validation; None: all of them.

    Raises:
      EntryError: the job cannot be had, or cannot be trained; or it is a function that writes its own loop.
    """
    if run_job.is_program(config.entry):
        return first_session(config, wrap=wrap, writes=False, trial_steps=trial_steps)
    loaded = _load(config)
    job = loaded.trial() if isinstance(loaded, Scheduled) else loaded
    if job is None:
        raise EntryError(
            f"entry = {config.entry!r}: the training of this estimator is only known when it runs, so it cannot be "
            "tried. Call its `test()`."
        )
    if isinstance(job, Program):
        raise EntryError(
            f"entry = {config.entry!r} is a function that takes the Supervisor: what it does is only known when it "
            "runs, so it cannot be tried. Try it with a short `max_steps` and another `logdir`."
        )
    return _session_of(job, config, wrap, writes=False, trial_steps=trial_steps)


def open_to_read(config: Config) -> Session:
    """Build the job that the config names, and a session for it, to load checkpoints into it.

    Raises:
      EntryError: see `open_session`.
    """
    # Its run was trained, so a `fit` of Keras's in a script was adopted, by an option perhaps.
    script = replace(config.script, adopt=True)
    return open_session(replace(config, input_position="restart", script=script))


def import_job(config: Config) -> None:
    """Import the module of the job before workers form a cluster: it may configure TensorFlow, which must come first.

    Raises:
      EntryError: it does not import.
    """
    _configure(config)
    import_module(config.entry, config.folder)


def _configure(config: Config) -> None:
    set_devices(config.devices)
    if config.seed is not None:
        tf.keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()


def _load(config: Config) -> AnyJob | Program | Scheduled:
    if run_job.is_program(config.entry):
        raise EntryError(
            f"entry = {config.entry!r}: several workers train a job, and this is a script. Name a function that "
            'returns the job, as in entry = "job:job". See docs/many-machines.md.'
        )
    _configure(config)
    logdir = str(config.rundir)
    offered: dict[str, Callable[[], object]] = {
        "output_dir": lambda: logdir,
        "run_config": lambda: RunConfig(model_dir=logdir),
        "hparams": lambda: None,
    }
    if config.devices is not None:
        import_module(config.entry, config.folder)  # it may configure the devices
    with default_logdir(logdir), strategy().scope() if config.devices is not None else contextlib.nullcontext():
        job = load_job(config.entry, config.folder, offered, _as_scheduled, config.params)
    if config.devices is not None and isinstance(job, GraphJob | Scheduled):
        raise EntryError(
            f"devices = {config.devices!r}: graphs of TensorFlow 1, Estimators and Experiments train on one device. "
            "Leave the key out, or train a Job or a KerasJob."
        )
    return job


def _as_scheduled(found: object) -> Scheduled | None:
    """Return (estimator, train_spec, eval_spec) as a job that trains on a schedule; None if it is not such a tuple."""
    if isinstance(found, tuple) and len(found) == 3 and isinstance(found[1], TrainSpec):
        return TrainAndEvaluate(*found)
    return None


def _program_of(job: Scheduled, config: Config) -> Program:
    schedule = config.schedule or job.default_schedule()
    try:
        program = job.program(schedule)
    except ValueError as error:
        raise EntryError(f"entry = {config.entry!r}: {error}") from None
    if schedule not in job.train_nothing and job.model_dir and absolute(Path(job.model_dir)) != config.rundir:
        raise EntryError(
            f"entry = {config.entry!r}: its model_dir is {job.model_dir}, and logdir is {config.rundir}. Leave "
            "model_dir out, or make logdir the same."
        )
    return program


def _options(config: Config) -> dict[str, Any]:
    """Return the options of each session of TensorFlow 2."""
    return {
        "exact_input": config.input_position == "exact",
        "stop_on_nan": config.stop_on_nan,
        "repeats": config.deterministic,
        "source": source_of(config.entry, config.folder),
    }


def _session_of(
    job: AnyJob,
    config: Config,
    wrap: Callable[[Job], Job] = lambda job: job,
    *,
    writes: bool = True,
    trial_steps: int | None = None,
) -> Session:
    if isinstance(job, GraphJob):
        source = source_of(config.entry, config.folder)
        return GraphJobSession(job, stop_on_nan=config.stop_on_nan, repeats=config.deterministic, source=source)
    options = _options(config)
    if isinstance(job, KerasJob):
        from trainerd.sessions.keras.job_session import KerasJobSession  # Keras is imported where it is used

        options |= {"writes": writes, "trial_steps": trial_steps, "max_steps": config.max_steps}
        return KerasJobSession(job, wrap=wrap, **options)
    return FunctionSession(job, wrap=wrap, **options)
