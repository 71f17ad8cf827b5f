"""The names that a user gave to Keras variables: a checkpoint knows variables by where they stand, not by name.

Two layers of one shape that change places in the source would exchange their values.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import msgspec
import tensorflow as tf

from trainerd.checkpoints.contents.keras_variables import VALUE, is_of_metrics, is_of_seeds
from trainerd.checkpoints.contents.object_graph import own_places

NAMES_KEY = "trainerd/names"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])")  # as Keras parts the name of a class
_NUMBERED = re.compile(r"(variable|seed_generator_state)(_\d+)?")  # Keras' names of variables that have none


class Named(msgspec.Struct, frozen=True, array_like=True):
    """The known facts about the variable at one place.

    Attributes:
      name: its path in Keras without the names that Keras gave; empty if nothing is left, or if it is of an optimizer.
      is_trained: whether it is trainable.
      slot_of: the place of the variable that this slot of an optimizer belongs to; empty if it is none.
    """

    name: str
    is_trained: bool = False
    slot_of: str = ""


Names = dict[str, Named]


def names_of(checkpoint: tf.train.Checkpoint, hidden: Mapping[str, Any], parts: Iterable[Any]) -> Names:
    """Return the known facts about each Keras variable, by its place.

    Args:
      checkpoint: tracks the state.
      hidden: variables that it does not track, by their keys in the file.
      parts: all objects of Keras in the state.
    """
    found = {place: each for place, each in own_places(checkpoint).items() if isinstance(each, keras.Variable)}
    for key, each in hidden.items():
        if isinstance(each, keras.Variable) and not (is_of_metrics(key) or is_of_seeds(key)):
            found[key.removesuffix(f"/{VALUE}")] = each
    given = {part.name for part in parts if isinstance(part, keras.layers.Layer) and _is_numbered(part)}
    flat = Counter(_flat(each) for each in found.values())
    trained = {_flat(each): place for place, each in found.items() if flat[_flat(each)] == 1}
    names = {place: _named(place, each, given, trained) for place, each in found.items()}
    counts = Counter(each.name for each in names.values())
    return {
        place: each if counts[each.name] == 1 else Named("", each.is_trained, each.slot_of)
        for place, each in names.items()
    }


def _is_numbered(layer: Any) -> bool:
    """Return whether Keras made the name of a layer, from its class and a count.

    A Bidirectional puts a word before the names of its two layers.
    """
    kind = _WORD.sub("_", type(layer).__name__).lower()
    return re.fullmatch(rf"((for|back)ward_)?{re.escape(kind)}(_\d+)?", layer.name) is not None


def _flat(variable: Any) -> str:
    """Return a path in the form that Keras gives it in the names of an optimizer's slots."""
    return str(variable.path).replace("/", "_")


def _named(place: str, variable: Any, given: set[str], trained: Mapping[str, str]) -> Named:
    owner, _, kind = str(variable.name).rpartition("_")
    while owner and owner not in trained:
        owner, _, more = owner.rpartition("_")
        kind = f"{more}_{kind}"
    if owner and "/" in variable.path:
        return Named("", slot_of=f"{trained[owner]} {kind}")
    *scopes, last = str(variable.path).split("/")
    own = [scope for scope in scopes if scope not in given]
    if _NUMBERED.fullmatch(last):
        own = []
    root = place.removeprefix("hidden/").partition("/")[0]
    return Named("/".join([root, *own, last]) if own else "", bool(variable.trainable))


def packed(names: Names) -> bytes:
    """Return the names as bytes, for a tensor of a checkpoint."""
    return zlib.compress(msgspec.msgpack.encode(names))


def stored_names(prefix: Path) -> Names:
    """Return the names in a checkpoint; none if it was saved without them."""
    reader = tf.train.load_checkpoint(str(prefix))
    if not reader.has_tensor(NAMES_KEY):
        return {}
    return msgspec.msgpack.decode(zlib.decompress(reader.get_tensor(NAMES_KEY)), type=Names)


def changes(before: Names, now: Names) -> list[str]:
    """Describe moved variables; if none moved, those that were frozen or unfrozen; if none was, changed slots."""
    return (
        moved(before, now)
        or trainable_changes(before, now)
        or [
            f"{place}: the slot of {was.slot_of} → the slot of {has.slot_of}"
            for place, was, has in _in_both(before, now)
            if was.slot_of and has.slot_of and was.slot_of != has.slot_of
        ]
    )


def trainable_changes(before: Names, now: Names) -> list[str]:
    """Describe the variables that were frozen and are trained now, or were trained and are frozen now."""
    words = {True: "trainable", False: "frozen"}
    return [
        f"{has.name or was.name or place}: {words[was.is_trained]} → {words[has.is_trained]}"
        for place, was, has in _in_both(before, now)
        if was.is_trained != has.is_trained and not (was.slot_of or has.slot_of)
    ]


def _in_both(before: Names, now: Names) -> list[tuple[str, Named, Named]]:
    """Return each place that is in both, with what was there and what is there now."""
    return [(place, was, now[place]) for place, was in before.items() if place in now]


def moved(before: Names, now: Names) -> list[str]:
    """Describe the variables that were at one place and are at another, if both places are there before and now."""
    places = {each.name: place for place, each in now.items() if each.name}
    return [
        f"{was.name}: {place} → {places[was.name]}"
        for place, was in before.items()
        if was.name and places.get(was.name, place) != place and place in now and places[was.name] in before
    ]
