"""A script as a job: `entry = "train.py"`. It runs as `python train.py` does, in the process of the daemon."""

from __future__ import annotations

import contextlib
import runpy
import sys

from trainerd.config.schema import Config
from trainerd.daemon.adoption import adopted
from trainerd.errors import EntryError
from trainerd.job.definition import Program


def program_of(config: Config) -> Program:
    """Return the program that runs the script which a config names. Nothing is imported before its own first import.

    Raises:
      EntryError: the script does not exist, or the config has a key that only the script itself can apply.
    """
    path = config.folder / config.entry
    if not path.is_file():
        raise EntryError(f"entry = {config.entry!r}: the script {path} does not exist.")
    if config.seed is not None or config.deterministic:
        raise EntryError(
            f"entry = {config.entry!r}: `seed` and `deterministic` have no effect on a script. Leave them out, and "
            "call keras.utils.set_random_seed and tf.config.experimental.enable_op_determinism in the script."
        )

    def run(supervisor: object) -> None:
        own = sys.argv[:]
        sys.argv[:] = [str(path), *config.script.arguments]
        sys.path.insert(0, str(path.parent))
        try:
            with adopted(config.rundir) if config.script.adopt else contextlib.nullcontext():
                runpy.run_path(str(path), run_name="__main__")
        finally:
            sys.argv[:] = own

    return Program(run, takes_supervisor=False)
