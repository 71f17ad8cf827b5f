"""The stages of a `fit`, as its callback sees them."""

from __future__ import annotations

import enum


class FitStage(enum.Enum):
    """The stage of a `fit`: it says what of the state is sound when an error comes."""

    IDLE = "no fit runs"
    BOUNDARY = "between two steps: all is sound"
    STEP = "in a step, or in a validation that no known end of an epoch came before: nothing is sound"
    DONE = "a step is done, and callbacks are called for it: it is counted"
    REPLAYED = "callbacks are called once more for the last batch of an epoch: nothing is sound"
    KEPT = "between two epochs: all is sound as it was when this stage was entered"


# A program may call the callbacks itself, and in its own order: a step or a boundary may come at any time.
TRANSITIONS = {
    FitStage.IDLE: {FitStage.BOUNDARY},
    FitStage.BOUNDARY: {FitStage.STEP, FitStage.KEPT, FitStage.IDLE},
    FitStage.STEP: {FitStage.DONE, FitStage.REPLAYED, FitStage.BOUNDARY, FitStage.IDLE},
    FitStage.DONE: {FitStage.STEP, FitStage.BOUNDARY, FitStage.IDLE},
    FitStage.REPLAYED: {FitStage.STEP, FitStage.BOUNDARY, FitStage.IDLE},
    FitStage.KEPT: {FitStage.STEP, FitStage.BOUNDARY, FitStage.IDLE},
}
