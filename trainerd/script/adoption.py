"""Replaces the `model.fit` of a script when the script imports Keras: by trainerd's, or by an error."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from trainerd.errors import EntryError
from trainerd.job.user_code import is_users_file
from trainerd.rundir.state import Phase

log = logging.getLogger(__name__)

_DROPPED = "trainerd ignores the callback BackupAndRestore: it saves and restores the training itself"


def adopted(logdir: Path) -> contextlib.AbstractContextManager[None]:
    """Replace `keras.Model.fit` by `trainerd.keras.fit` as soon as Keras is imported while the block runs.

    Args:
      logdir: the run directory.
    """
    return _after_keras(lambda keras: _adopt(keras, logdir))


def refused(entry: str) -> contextlib.AbstractContextManager[None]:
    """Have `keras.Model.fit` raise an EntryError that names the line to change, while the block runs.

    Args:
      entry: the script.
    """

    def fit(self: Any, *arguments: Any, **options: Any) -> Any:
        raise EntryError(f"entry = {entry!r}: {_keras_own()}")

    return _after_keras(lambda keras: setattr(keras.Model, "fit", fit))


def warned() -> contextlib.AbstractContextManager[None]:
    """Have a call of `keras.Model.fit` log a warning and be shown as a phase while the block runs.

    A call with `Supervise` as a callback is left alone.
    """

    def change(keras: Any) -> None:
        model, said = keras.Model, set[str]()
        own = model.fit

        @functools.wraps(own)
        def fit(self: Any, *arguments: Any, **options: Any) -> Any:
            given = inspect.signature(own).bind(self, *arguments, **options).arguments.get("callbacks")
            supervise = getattr(sys.modules.get("trainerd.programs.keras.supervise"), "Supervise", ())
            text = _keras_own()
            if any(isinstance(each, supervise) for each in _listed(given)):
                return own(self, *arguments, **options)
            if text not in said:
                said.add(text)
                log.warning("%s", text, extra={"event": "keras-fit"})
            from trainerd.run.host import hosted_phase  # it imports TensorFlow, as Keras has by now

            with hosted_phase(Phase.UNMANAGED):
                return own(self, *arguments, **options)

        model.fit = fit

    return _after_keras(change)


def _listed(callbacks: Any) -> list[Any]:
    """Return the `callbacks` of `fit` as a list. Keras takes a single one, too."""
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]


def _keras_own() -> str:
    """Return what is to be said about the call of Keras's `fit` that is under way."""
    frames = [each for each in traceback.extract_stack() if is_users_file(each.filename)]
    where = "".join(traceback.format_list(frames[-1:]))
    return (
        f"this `fit` is Keras's own, which trainerd cannot pause or resume:\n{where}"
        'Change it to `trainerd.keras.fit(model, ..., logdir="...")`; or leave the script as it is and add --adopt, or '
        "`adopt = true` in the table [script] of its config."
    )


@contextlib.contextmanager
def _after_keras(change: Callable[[Any], None]) -> Iterator[None]:
    """Change Keras as soon as it is imported while the block runs."""
    if (keras := sys.modules.get("keras")) is not None:
        change(keras)
    finder = _AfterKeras(change)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _AfterKeras(MetaPathFinder):
    """Finds Keras as Python does, and changes it when it is loaded. Some only ask whether it can be found."""

    def __init__(self, change: Callable[[Any], None]) -> None:
        self._change = change
        self._is_asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of Keras; None for other modules."""
        if fullname != "keras" or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_change(module: ModuleType) -> None:
                load(module)
                self._change(module)

            setattr(spec.loader, "exec_module", load_and_change)  # noqa: B010  mypy takes it for a method
        return spec


def _adopt(keras: Any, logdir: Path) -> None:
    model = keras.Model
    signature = inspect.signature(model.fit)

    @functools.wraps(model.fit)
    def adopted_fit(self: Any, *arguments: Any, **options: Any) -> Any:
        from trainerd.keras import fit  # it imports Keras

        given = signature.bind(self, *arguments, **options).arguments
        callbacks = _listed(given.pop("callbacks", None))
        kept = [each for each in callbacks if not isinstance(each, keras.callbacks.BackupAndRestore)]
        if len(kept) < len(callbacks):
            log.info(_DROPPED, extra={"event": "callbacks"})
        return fit(given.pop("self"), callbacks=kept, logdir=logdir, **given)

    model.fit = adopted_fit
