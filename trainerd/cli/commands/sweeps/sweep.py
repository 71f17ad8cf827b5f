"""`trainerd sweep`: many runs of one config, with other values of some keys."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import click

from trainerd.agent import notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.queue_folder import QueueFolder
from trainerd.agent.shown import warning
from trainerd.agent.swept import queue_next
from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples, GroupWithExamples
from trainerd.cli.columns import lines
from trainerd.cli.queue_options import QueueOptions, of_entry
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath, Whole
from trainerd.config import parse as configs
from trainerd.errors import UsageError
from trainerd.history.choice import goal
from trainerd.rundir.state import LARGEST
from trainerd.sweeps import space
from trainerd.sweeps.spec import SweepSpec
from trainerd.sweeps.standing import PointStanding, SweepStanding, read_standing
from trainerd.sweeps.sweep import Sweep, make_sweep
from trainerd.text import counted, figure

_MAKE = {
    "trainerd sweep trainerd.toml --set params.rate=1e-2,1e-3 --set params.units=32,64": "Make a grid of four.",
    "trainerd sweep trainerd.toml --set 'params.rate=log(1e-4,1e-1)' --random 20 --halve val_loss --rungs 1000,3000": (
        "Draw 20, and let the best third at step 1000 train on to step 3000."
    ),
}
_SHOW = {
    "trainerd sweep show sweeps/digits-1": "Show the points of a sweep.",
    "trainerd sweep show sweeps/digits-1 --image sweep.svg": "Draw them as parallel coordinates.",
}
_NEXT = {
    "trainerd sweep next sweeps/digits-1": "Print the command of each point that trains now.",
    "trainerd sweep next ../digits/sweeps/rates": "Print those of another project.",
}


class _Rungs(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Steps, with commas between them."""

    name = "step,step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read them."""
        if isinstance(value, tuple):
            return value
        return tuple(Whole(1, LARGEST).convert(each.strip(), param, ctx) for each in str(value).split(","))


class _SweepGroup(GroupWithExamples):
    """Makes a sweep, unless the first word names another command of it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words."""
        is_make = bool(args) and args[0] not in self.commands and args[0] not in ctx.help_option_names
        return super().parse_args(ctx, ["make", *args] if is_make else args)


@click.group("sweep", cls=_SweepGroup, examples=_MAKE)
def command() -> None:
    """Train many runs of one config, with other values of some keys.

    `trainerd sweep CONFIG` is `trainerd sweep make CONFIG`.
    """


@command.command(
    "make",
    cls=CommandWithExamples,
    examples={line.replace("sweep", "sweep make", 1): text for line, text in _MAKE.items()},
)
@click.argument("config", type=GivenPath(path_type=Path))
@click.option(
    "--set",
    "said",
    multiple=True,
    required=True,
    metavar="KEY=VALUES",
    help="A key and its values: 1,2,3, or a range: log(LOW,HIGH), uniform(LOW,HIGH), int(LOW,HIGH); repeatable.",
)
@click.option("--random", "random_count", type=Whole(1), help="Draw N points at random. Default: all combinations.")
@click.option("--sobol", "sobol_count", type=Whole(1), help="Draw the first N points of a Sobol sequence.")
@click.option("--optuna", "optuna_count", type=Whole(1), help="Have Optuna choose N points by their results.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="The seed of the points that are drawn.")
@click.option("--metric", metavar="METRIC", help="The metric by which points are compared, such as val_loss.")
@click.option("--halve", metavar="METRIC", help="The same, and only the better points train on at each rung.")
@click.option("--rungs", type=_Rungs(), default=(), help="The steps at which they are compared, such as 1000,3000.")
@click.option("--factor", type=Whole(2, 1000), default=3, show_default=True, help="Of N points, one trains on.")
@click.option("--name", metavar="NAME", help="The name of the sweep. Default: that of the run, and a number.")
@of_entry
@click.option("--no-queue", "is_apart", is_flag=True, help="Make the folder, and leave the queue as it is.")
def command_make(
    config: Path,
    said: tuple[str, ...],
    name: str | None,
    metric: str | None,
    halve: str | None,
    place: QueueOptions,
    is_apart: bool,
    **given: Any,
) -> None:
    """Make the folder sweeps/NAME beside the config, with the config of each point, and add all points to the queue.

    `trainerd agent` trains them. With rungs, all points train to the first one, and then the best of them to the next.
    """
    counts = {each: given.pop(f"{each}_count") for each in ("random", "sobol", "optuna")}
    drawn = [each for each, count in counts.items() if count is not None]
    if len(drawn) > 1:
        raise UsageError(f"--{drawn[0]} and --{drawn[1]} contradict each other. Give one.")
    if metric is not None and halve is not None:
        raise UsageError("--metric and --halve contradict each other. Give one.")
    if halve is not None and not given["rungs"]:
        raise UsageError("--halve METRIC needs the steps of its rungs: --rungs STEP,STEP.")
    sampler = drawn[0] if drawn else "grid"
    compared = metric or halve
    asked = given | {"set": said, "sampler": sampler, "count": counts.get(sampler)}
    wanted = SweepSpec(base="", metric=str(goal(compared)) if compared is not None else None, **asked)
    sweep = make_sweep(config / configs.NAME if config.is_dir() else config, wanted, name)
    folder, count = _short(sweep.folder), counted(wanted.count or len(sweep.points()), "point")
    say(f"made {folder}: {f'Optuna will choose {count}' if sweep.is_adaptive else count}")
    further = {"sweep show": "compare them"}
    if is_apart:
        further |= {"sweep next": "print the commands that train them"}
    else:
        queue, known = QueueFolder(), notes.read()
        added = queue_next(queue, sweep, _entry_like(place), known.slots)
        say(f"added {counted(len(added), 'run')} to the queue")
        if lack := warning(known, queue.read()):
            say(lack, err=True)
    for typed, what in further.items():
        say(f"  {options.command_line(typed)} {shlex.quote(str(folder))}   {what}")


def _entry_like(place: QueueOptions) -> QueueEntry:
    """Return an entry with the options of those to add."""
    return place.apply(QueueEntry(config="", logdir="", folder=""), notes.read())


@command.command("show", cls=CommandWithExamples, examples=_SHOW)
@click.argument("folder", type=GivenPath(path_type=Path, file_okay=False))
@click.option("--metric", metavar="METRIC", help="Compare the points by their best checkpoint of this metric.")
@click.option(
    "--image",
    type=GivenPath(path_type=Path, dir_okay=False),
    help="Write a picture, .png or .svg, and show nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the points, on one line.")
def command_show(folder: Path, metric: str | None, image: Path | None, as_json: bool) -> None:
    """Show the points of a sweep: values, step, metric and state of each, and the best one.

    Without --metric, points are compared at the rungs of the sweep, if it has some.
    """
    standing = read_standing(Sweep.read(folder), metric)
    if as_json:
        say(json.dumps(standing.to_json()))
        return
    if image is not None:
        from trainerd.sweeps.picture import as_picture  # and Matplotlib with it

        as_picture(standing, image)
        say(f"wrote {image}")
        return
    say("\n".join(_table(standing)))
    if (best := standing.best) is not None:
        words = [str(_short(folder.absolute())), *(["best"] if metric is None else ["--best", metric]), "OUT"]
        say(f"\nThe best is {best.name}. `{options.command_line('export')} {shlex.join(words)}` packages it.")


@command.command("next", cls=CommandWithExamples, examples=_NEXT)
@click.argument("folder", type=GivenPath(path_type=Path, file_okay=False))
@click.option(
    "-n",
    "--at-a-time",
    type=Whole(1),
    default=1,
    show_default=True,
    help="How many points of Optuna may be under way.",
)
@click.option("--queue", "is_queued", is_flag=True, help="Add the points to the queue in place of printing them.")
def command_next(folder: Path, at_a_time: int, is_queued: bool) -> None:
    """Print the command of each point that trains now, and nothing when the sweep is over.

    With rungs, each command trains to the next rung. When all points have reached it, the next call prints the commands
    of the best.
    """
    sweep = Sweep.read(folder)
    if is_queued:
        queue = QueueFolder()
        like = [each for each in queue.read().entries.values() if each.sweep == str(sweep.folder)]
        added = queue_next(queue, sweep, like[0] if like else _entry_like(QueueOptions(0, None, 0)), at_a_time)
        say(f"added {counted(len(added), 'run')} to the queue")
        return
    results = {point.name: sweep.result(point) for point in sweep.points()}
    sweep.grow(results, at_a_time)
    points = {point.name: point for point in sweep.points()}
    results = {name: sweep.result(point) for name, point in points.items()}
    for name, max_steps in sweep.next(results).items():
        further = [] if max_steps is None else ["--max-steps", str(max_steps)]
        say(options.command_line("run", _short(points[name].config), options_of_start=further))


def _table(standing: SweepStanding) -> list[str]:
    keys = list(space.read_space(standing.sweep.spec.set))
    head = ["point", *(key.removeprefix("params.") for key in keys), "step", standing.goal.metric, "at", "state"]
    rows = [head, *(_row(each, keys) for each in standing.points)]
    return lines(rows, {0, len(head) - 1})


def _row(point: PointStanding, keys: list[str]) -> list[str]:
    values = [json.dumps(point.values[key]) if point.values[key] is not None else "" for key in keys]
    metric = figure(point.metric) if point.metric is not None else ""
    at = f"{point.metric_step:,}" if point.metric_step is not None else ""
    return [point.name, *values, f"{point.step:,}", metric, at, point.state + ", the best" * _is_marked(point)]


def _is_marked(point: PointStanding) -> bool:
    return point.is_best and point.state != "the best"


def _short(path: Path) -> Path:
    return Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path
