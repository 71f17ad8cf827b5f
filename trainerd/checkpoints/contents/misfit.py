"""Says in a line why a checkpoint does not fit the objects that it is restored into."""

from __future__ import annotations

import re

# What TensorFlow says. Lines with a dump of its protos follow.
_NOT_IN_JOB = re.compile(r"Unresolved object in checkpoint \(root\)\.(\S+): attributes")
_NOT_IN_CHECKPOINT = re.compile(r"Object not assigned a value from checkpoint: .*?'([^']+)'")
_OTHER_SHAPE = re.compile(
    r"incompatible tensor with shape (\(.*?\)) .* variable with shape (\(.*?\)) and name (\S+?)\.?$"
)


def why_unfit(error: Exception) -> str:
    """Return what TensorFlow's error says: which variable differs, and how."""
    line = (str(error).splitlines() or [""])[0]
    if found := _NOT_IN_JOB.search(line):
        return f"The checkpoint has {found[1]}, and nothing is at that place now."
    if found := _NOT_IN_CHECKPOINT.search(line):
        return f"The checkpoint has no value for the variable {found[1]}."
    if found := _OTHER_SHAPE.search(line):
        return f"The variable {found[3]} has the shape {found[1]} in the checkpoint, and {found[2]} now."
    return line
