"""Voids points of earlier processes.

A process that is killed has often written points that are later than its last checkpoint. The next one runs those
steps again. TensorBoard's slow loader forgets them where it finds a `SessionLog.START`. Its fast loader, the default,
does not know that event: it forgets a tag's later points only when one of the same tag comes with an earlier step. So
each such tag is given an event at the first void step, with a value of a kind that no dashboard shows.
"""

from __future__ import annotations

from pathlib import Path

from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata

from trainerd.history.curves import events

# Of TensorFlow 0.x. The slow loader skips it; the fast one counts it as a point that cannot be read, and hides it.
VOID = "obsolete_old_style_histogram"
_SCALAR = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"), data_class=1)


def void_from(logdir: Path, step: int) -> list[Summary.Value]:
    """Return a value for each tag with points of `step` or later. Written at `step`, it voids them.

    Reads the newest file, and older ones as far as needed: where a process has begun at this step or before, it has
    taken back what was later in the files before its own.

    Raises:
      OSError: a file cannot be read.
    """
    found: dict[str, Summary.Value] = {}
    for path in sorted(logdir.glob("events.out.tfevents.*"), reverse=True):
        begun = False
        with path.open("rb") as file:  # a link that the user made, to an archive, is followed
            for event in events(file):
                begun = begun or (event.session_log.status == SessionLog.START and event.step <= step)
                if event.step >= step:
                    for value in event.summary.value:
                        if value.WhichOneof("value") != VOID and value.tag not in found:
                            found[value.tag] = _void(value)
        if begun:
            break
    return list(found.values())


def _void(value: Summary.Value) -> Summary.Value:
    """Return a value that voids points. It has the kind of the curve, for when the real points are deleted."""
    metadata = value.metadata if value.HasField("metadata") else _SCALAR
    return Summary.Value(tag=value.tag, metadata=metadata, **{VOID: b""})
