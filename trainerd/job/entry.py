"""From `entry = "module:attribute"` to a Job. Importing the user's module imports TensorFlow, if it does."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from trainerd.errors import EntryError, TrainerdError
from trainerd.job.definition import GraphJob, Job, KerasJob, Program, Scheduled
from trainerd.job.params import require_taken
from trainerd.job.user_code import job_traceback, user_code
from trainerd.text import type_of

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLAIN = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)  # neither *args nor **kwargs


def load_job(
    entry: str,
    folder: Path,
    offered: Mapping[str, Callable[[], object]] = MappingProxyType({}),
    as_scheduled: Callable[[object], Scheduled | None] = lambda found: None,
    params: Mapping[str, Any] = MappingProxyType({}),
) -> Job | GraphJob | KerasJob | Program | Scheduled:
    """Import a module and build the job that its attribute describes.

    Args:
      entry: "module:attribute"; the attribute is a Job, a GraphJob, a KerasJob or an Experiment, or a function that
        returns one, without arguments or with parameters and some that are offered; or a function that takes the
        Supervisor.
      folder: put first on the import path.
      offered: name to maker of the arguments that such a function may take.
      as_scheduled: makes what trains on a schedule of what the entry gave, if that is its description; else None.
      params: keyword arguments of the function.

    Raises:
      EntryError: any of this fails, with the job's own traceback.
    """
    module_name, _, attribute = entry.partition(":")
    found: Any = import_module(entry, folder)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise EntryError(f"entry = {entry!r}: the module {module_name} has no {attribute!r}.{_near(found, name)}")
        found = getattr(found, name)
    is_built = isinstance(found, Job | GraphJob | KerasJob | Scheduled) or not callable(found)
    parameters = {} if is_built else _parameters(found)
    if is_built and params:
        raise EntryError(
            f"entry = {entry!r} is {type_of(found)}, and [params] has {', '.join(map(repr, params))}. Parameters are "
            f"arguments of a function: write one that returns the job, such as `def job({', '.join(params)})`."
        )
    require_taken(entry, params, parameters, offered)
    arguments = {name: make for name, make in offered.items() if name in parameters}
    needed = [name for name, each in parameters.items() if each.default is each.empty and each.kind in _PLAIN]
    needed = [name for name in needed if name not in params]
    other = [name for name in needed if name not in offered]
    may_take = _may_take(entry, other, offered)
    if len(needed) == len(other) == 1 and parameters[other[0]].kind in _POSITIONAL:  # it takes the Supervisor
        return Program(functools.partial(cast(Callable[..., object], found), **params), may_take=may_take)
    if other:
        raise EntryError(may_take)
    with _blamed(entry, failed="raised while it built the job", ended="building the job"):
        job = found if is_built else found(**{name: make() for name, make in arguments.items()}, **params)
    with _blamed(entry, failed="cannot be trained", ended="it"):
        job = as_scheduled(job) or job
    if isinstance(job, GraphJob | KerasJob | Scheduled):
        return job
    if not isinstance(job, Job):
        raise EntryError(f"entry = {entry!r} gave {_what(job)}")
    _require_right_types(job, entry)
    return job


def _may_take(entry: str, given: Sequence[str], offered: Mapping[str, object]) -> str:
    """Return the message for a function that takes other arguments than it gets."""
    known = f", or any of {', '.join(f'`{name}`' for name in offered)}" if offered else ""
    return (
        f"entry = {entry!r}: the function takes {' and '.join(f'`{name}`' for name in given)}. A function that "
        f"returns a job takes no arguments{known}; others need a default, or a value in the table [params]. A function "
        "that writes its own loop takes one argument, the Supervisor, and opens a session with it."
    )


def _parameters(found: object) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, by name; empty if it is none, or is not written in Python."""
    try:
        return inspect.signature(found).parameters if callable(found) else {}
    except (ValueError, TypeError):
        return {}


def _require_right_types(job: Job, entry: str) -> None:
    if not isinstance(job.state, Mapping) or any(not isinstance(name, str) for name in job.state):
        raise EntryError(
            f'entry = {entry!r}: the job\'s state must be a dict of name to what is saved, such as {{"model": model}}, '
            f"and is {job.state!r}."
        )
    for name in ("train_step", "evaluate", "summaries", "export", "predict"):
        value = getattr(job, name)
        if not callable(value) and (value is not None or name == "train_step"):
            raise EntryError(f"entry = {entry!r}: the job's {name} must be a function, and is {value!r}.")
    _require_takes_batch(job, entry)


def _require_takes_batch(job: Job, entry: str) -> None:
    """Require that the step can be called with a batch of the dataset, or with nothing if there is no dataset."""
    parameters = _parameters(job.train_step)
    needed = [name for name, each in parameters.items() if each.default is each.empty and each.kind in _PLAIN]
    takes_any = any(each.kind is each.VAR_POSITIONAL or each.kind in _POSITIONAL for each in parameters.values())
    has_signature = bool(parameters) or inspect.isfunction(job.train_step)
    names = ", ".join(needed)
    if job.dataset is None and needed:
        raise EntryError(
            f"entry = {entry!r}: the job's `train_step` takes {names}, and the job has no dataset to call it with. "
            "Give it one: trainerd.Job(train_step, dataset=...)."
        )
    if job.dataset is not None and (len(needed) > 1 or (has_signature and not takes_any)):
        unpack = f": {names} = batch" if len(needed) > 1 else ": ..."
        raise EntryError(
            f"entry = {entry!r}: `train_step` takes one argument, a batch of the dataset, and this one takes "
            f"{names or 'none'}. Write `def train_step(batch){unpack}`."
        )


def import_module(entry: str, folder: Path) -> object:
    """Import the module of an entry, once. Return it.

    Args:
      entry: "module:attribute".
      folder: put first on the import path.

    Raises:
      EntryError: it does not import.
    """
    module_name = entry.partition(":")[0]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    with _blamed(entry, failed="does not import", ended="importing it"):
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
                raise EntryError(
                    f"entry = {entry!r}: there is no module {error.name!r}. Python looked for it in {folder} and among "
                    f"the packages of {sys.prefix}."
                ) from None
            raise


def _blamed(entry: str, *, failed: str, ended: str) -> contextlib.AbstractContextManager[None]:
    """Turn an error that the user's code raises in the block into an EntryError."""

    def as_entry_error(error: BaseException) -> TrainerdError:
        if isinstance(error, TrainerdError):
            return error
        if isinstance(error, SystemExit):
            return EntryError(f"entry = {entry!r}: {ended} ended with exit({error.code!r}).")
        return EntryError(f"entry = {entry!r} {failed}:\n{job_traceback(error)}")

    return user_code(as_entry_error)


def _near(module: object, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, dir(module), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _what(value: object) -> str:
    """Return what an entry gave in place of a job, and what to do."""
    if value is None:
        return "None, and a job is needed. End the function with `return trainerd.Job(...)` or another job."
    parts = value if isinstance(value, tuple) else (value,)
    given = f"a tuple of {', '.join(map(type_of, parts))}" if isinstance(value, tuple) and value else type_of(value)
    if any(_is_keras_model(each) for each in parts):
        return f"{given}, and a job is needed. Wrap the compiled model: trainerd.KerasJob(model, data=...)."
    return f"{given}, and a job is needed: a trainerd.Job, GraphJob, KerasJob or Experiment."


def _is_keras_model(value: object) -> bool:
    """Return whether a value is a Keras model, without importing Keras."""
    bases = {(each.__module__.partition(".")[0], each.__name__) for each in type(value).__mro__}
    return not bases.isdisjoint({("keras", "Model"), ("tf_keras", "Model")})
