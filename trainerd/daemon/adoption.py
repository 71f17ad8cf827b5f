"""Has the `model.fit` of a script be trainerd's, when the script imports Keras."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import logging
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

log = logging.getLogger(__name__)

_DROPPED = "trainerd ignores the callback BackupAndRestore: it saves and restores the training itself"


@contextlib.contextmanager
def adopted(logdir: Path) -> Iterator[None]:
    """Replace `keras.Model.fit` by `trainerd.keras.fit` as soon as Keras is imported while the block runs.

    Args:
      logdir: the run directory.
    """
    if (keras := sys.modules.get("keras")) is not None:
        _replace_fit(keras, logdir)
    finder = _AfterKeras(logdir)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _AfterKeras(MetaPathFinder):
    """Finds Keras as Python does, and replaces `fit` when it is loaded. Some only ask whether it can be found."""

    def __init__(self, logdir: Path) -> None:
        self._logdir = logdir
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

            def load_and_replace(module: ModuleType) -> None:
                load(module)
                _replace_fit(module, self._logdir)

            setattr(spec.loader, "exec_module", load_and_replace)  # noqa: B010  mypy takes it for a method
        return spec


def _replace_fit(keras: Any, logdir: Path) -> None:
    model = keras.Model
    signature = inspect.signature(model.fit)

    @functools.wraps(model.fit)
    def adopted_fit(self: Any, *arguments: Any, **options: Any) -> Any:
        from trainerd.keras import fit  # it imports Keras

        given = signature.bind(self, *arguments, **options).arguments
        callbacks = list(given.pop("callbacks", None) or ())
        kept = [each for each in callbacks if not isinstance(each, keras.callbacks.BackupAndRestore)]
        if len(kept) < len(callbacks):
            log.info(_DROPPED, extra={"event": "callbacks"})
        return fit(given.pop("self"), callbacks=kept, logdir=logdir, **given)

    model.fit = adopted_fit
