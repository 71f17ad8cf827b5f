"""A script as a job: `entry = "train.py"`. It runs as `python train.py` does, in the process of the daemon."""

from __future__ import annotations

import contextlib
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

from trainerd.config.schema import Config
from trainerd.errors import EntryError, TrainerdError
from trainerd.job.definition import Program
from trainerd.job.devices import set_devices
from trainerd.job.params import ScriptParams, giving
from trainerd.job.user_code import end_of, job_traceback, user_code
from trainerd.loop.contract import Session
from trainerd.script.adoption import adopted, refused, warned


def program_of(config: Config) -> Program:
    """Return the program that runs the script which a config names. Nothing is imported before its own first import.

    Raises:
      EntryError: the script does not exist, or the config has a key that only the script itself can apply.
    """
    path = _path_of(config)
    return Program(lambda supervisor: _run(path, config, warned()), takes_supervisor=False)


def require_syntax(config: Config) -> None:
    """Require that a script parses, before anything else is said of it.

    Raises:
      EntryError: it does not exist, or has a syntax error.
    """
    path = _path_of(config)
    with warnings.catch_warnings(action="ignore"):  # Python says them when it runs the script
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise EntryError(f"entry = {config.entry!r}: the script does not parse:\n{job_traceback(error)}") from None


def first_session(config: Config, **options: Any) -> Session:
    """Run a script up to its first `fit`, and return the session of that `fit`, which has not trained.

    Args:
      config: the script's; it counts, and not the run directory and settings that the script gives.
      options: of the session; see `KerasJobSession`.

    Raises:
      EntryError: the script fails before, or ends without a `fit`.
    """
    from trainerd.run.host import hosting  # its room may import TensorFlow
    from trainerd.run.trial import Trial, TrialEnded

    def failed(error: BaseException) -> TrainerdError:
        if isinstance(error, TrainerdError):
            return error
        if isinstance(error, SystemExit):
            return EntryError(f"entry = {config.entry!r}: the script ended itself before its fit {end_of(error)}.")
        return EntryError(f"entry = {config.entry!r}: the script failed before its fit:\n{job_traceback(error)}")

    path, trial = _path_of(config), Trial(config, options)
    with user_code(failed), hosting(trial), contextlib.suppress(TrialEnded):
        _run(path, config, refused(config.entry))
    if trial.taken is None:
        raise trained_nothing(config)
    return trial.taken


def trained_nothing(config: Config) -> EntryError:
    """Return the error of a script that has trained nothing."""
    return EntryError(
        f"entry = {config.entry!r}: the script has ended, and trainerd has trained nothing. Call trainerd.keras.fit in "
        "it; or set `adopt = true` in the table [script], if it calls `fit` of a keras.Model."
    )


def _path_of(config: Config) -> Path:
    path = config.script_path
    if not path.is_file():
        raise EntryError(f"entry = {config.entry!r}: the script {path} does not exist.")
    if config.seed is not None or config.deterministic:
        raise EntryError(
            f"entry = {config.entry!r}: `seed` and `deterministic` have no effect on a script. Leave them out, and "
            "call keras.utils.set_random_seed and tf.config.experimental.enable_op_determinism in the script."
        )
    return path


def _run(path: Path, config: Config, otherwise: contextlib.AbstractContextManager[None]) -> None:
    """Run the script, with its `fit` adopted if the config says so, and otherwise in this context."""
    set_devices(config.devices)
    own = sys.argv[:]
    sys.argv[:] = [str(path), *config.script.arguments]
    sys.path.insert(0, str(path.parent))
    try:
        fit = adopted(config.rundir) if config.script.adopt else otherwise
        with giving(ScriptParams(config.entry, config.params)), fit:
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv[:] = own
