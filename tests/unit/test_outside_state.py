"""What methods keep outside of their object is found in their source."""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Callable
from random import gauss
from types import FunctionType
from typing import Any, ClassVar

import numpy as np
import pytest

from trainerd.job.outside_state import attributes_set, function_in, functions_of, kept_outside

SEEN: list[int] = []
COUNT = 0
DRAWS = iter(range(9))
RNG = np.random.default_rng(1)
LOG = io.StringIO()
SETTINGS = {"rate": 0.1}


class Model:
    rate = 0.1


MODEL = Model()


class Owner:
    shared: ClassVar[list[int]] = []
    number = 0
    model: Any = MODEL

    def __init__(self) -> None:
        self.own, self.total = [0], 0


def draws_beside() -> float:
    return random.gauss(0.0, 1.0)


class Sets(Owner):
    def of_class(self) -> None:
        Sets.number += 1

    def of_type(self) -> None:
        type(self).number = 3

    def in_class(self) -> None:
        self.shared.append(1)

    def of_model(self) -> None:
        self.model.seen = getattr(self.model, "seen", 0) + 1

    def deep_in_model(self) -> None:
        self.model.layers[0].rate = 0.1

    def of_model_by_name(self) -> None:
        setattr(self.model, "seen", 1)  # noqa: B010

    def of_saved_global(self) -> None:
        MODEL.rate = 0.2

    def of_global(self) -> None:
        global COUNT
        COUNT += 1

    def in_global(self) -> None:
        SEEN.append(1)

    def of_iterator(self) -> None:
        next(DRAWS)

    def of_generator(self) -> float:
        return float(RNG.uniform())

    def of_numpy(self) -> float:
        return float(np.random.uniform())

    def of_python(self) -> float:
        return gauss(0.0, 1.0)

    def by_helper(self) -> float:
        return draws_beside()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Sets.of_class, "number on the class Sets"),
        (Sets.of_type, "number on the class Sets"),
        (Sets.in_class, "shared on the class Sets"),
        (Sets.of_model, "seen on the model"),
        (Sets.deep_in_model, "layers.rate on the model"),
        (Sets.of_model_by_name, "seen on the model"),
        (Sets.of_saved_global, "rate on the model"),
        (Sets.of_global, "the global COUNT"),
        (Sets.in_global, "the global SEEN"),
        (Sets.of_iterator, "the global DRAWS"),
        (Sets.of_generator, "the global RNG"),
        (Sets.of_numpy, "the random numbers of np.random.uniform"),
        (Sets.of_python, "the random numbers of gauss"),
        (Sets.by_helper, "the random numbers of random.gauss"),
    ],
)
def test_what_is_kept_outside_is_named(method: FunctionType, words: str) -> None:
    [found] = kept_outside([method], Sets(), lambda value: value is MODEL)
    assert words in found


def test_what_a_function_keeps_around_it_is_named() -> None:
    def around() -> list[Callable[..., Any]]:
        number, parts, rng, steps = 0, [0], random.Random(1), iter([1, 2])

        def counts() -> None:
            nonlocal number
            number += 1

        def changes() -> None:
            parts[0] += 1

        return [counts, changes, lambda: rng.random(), lambda: next(steps)]

    found = [kept_outside([each], Owner(), lambda value: False) for each in around() if isinstance(each, FunctionType)]
    assert [each[0].split()[0] for each in found[:2]] == ["number", "parts"]
    assert {"rng of the function around <lambda>", "steps of the function around <lambda>"} <= {*found[2], *found[3]}


class Keeps(Owner):
    """Keeps all that it keeps in itself."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        self.own[0] += 1
        self.total = self.total + 1
        self.number += 1
        logs["mine"] = self.total
        local, count = [1], 0
        local.append(epoch)

        def inner() -> None:
            nonlocal count
            count += SETTINGS["rate"] > 0

        inner()
        self.model.learning_rate = 0.1
        self.model.variable.assign(2.0)
        self.model.stop_training = True
        LOG.write(str(np.mean(local)))
        os.remove("old")  # noqa: PTH107  as a program of today
        local.extend(np.append(np.sort(local), epoch))
        for self.last in local:
            np.random.default_rng(3).uniform()

    @property
    def has_any(self) -> bool:
        return bool(self.own)

    @contextlib.contextmanager
    def decorated(self) -> Any:
        self.opened = True
        yield


def test_what_an_object_keeps_in_itself_is_not_named() -> None:
    methods = [each for _, each in functions_of(Keeps)]
    assert {each.__name__ for each in methods} == {"on_epoch_end", "has_any", "decorated"}
    assert kept_outside(methods, Keeps(), lambda value: value is MODEL) == []
    assert attributes_set(methods) >= {"own", "total", "number", "opened"}


def test_what_has_no_source_is_not_read() -> None:
    space: dict[str, Any] = {}
    exec("def made():\n    global x\n    x = 1\n", space)
    assert kept_outside([space["made"]], Owner(), lambda value: False) == []
    assert function_in(len) is None and function_in(3) is None
