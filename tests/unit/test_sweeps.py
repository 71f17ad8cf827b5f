"""Sweeps: the points of a space, the folder, successive halving, and what the runs have reached."""

from __future__ import annotations

import builtins
import json
import math
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from trainerd.checkpoints import catalogue
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import parse
from trainerd.config.metric_goals import Best
from trainerd.copies.contents import JobFiles
from trainerd.errors import ConfigError, TrainerdError, UsageError
from trainerd.job.written_params import written_params
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase
from trainerd.sweeps import space
from trainerd.sweeps.adaptive import require_optuna
from trainerd.sweeps.halving import Halving, PointResult
from trainerd.sweeps.spec import SweepSpec
from trainerd.sweeps.standing import best_of_sweep, read_standing
from trainerd.sweeps.sweep import Sweep, SweepPoint, make_sweep, metric_at

CONFIG = """\
# mine
entry = "job:job"
logdir = "run"
tags = ["a"]
[params]
rate = 0.1  # the rate
[log]
level = "error"
"""
GOAL = Best("loss", is_least=True)


# ---------------------------------------------------------------------- the space


def test_a_grid_is_every_combination_in_the_order_that_was_typed() -> None:
    found = space.grid(space.read_space(["params.rate=1e-2, 1e-3", "params.kind=adam,sgd", "max_steps=5"]))
    assert found[:3] == [
        {"params.rate": 0.01, "params.kind": "adam", "max_steps": 5},
        {"params.rate": 0.01, "params.kind": "sgd", "max_steps": 5},
        {"params.rate": 0.001, "params.kind": "adam", "max_steps": 5},
    ]
    assert len(found) == 4


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("32,64", (32, 64)),
        ("true,false", (True, False)),
        ("1,true", (1, True)),
        ("[1,2],[3]", ([1, 2], [3])),
        ('"a,b","c"', ("a,b", "c")),
        ("1,adam", (1, "adam")),
        ("log(1,x", ("log(1", "x")),
    ],
)
def test_values_are_toml_or_words(said: str, values: tuple[Any, ...]) -> None:
    [axis] = space.read_space([f"k={said}"]).values()
    assert isinstance(axis, space.Choice) and axis.values == values
    assert [type(each) for each in axis.values] == [type(each) for each in values]


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (["k"], "--set: expected KEY=VALUE,VALUE, such as params.units=32,64, got 'k'."),
        (["k="], "expected KEY=VALUE,VALUE"),
        (["k=a,,b"], "expected values, each once"),
        (["k=1,1"], "expected values, each once"),
        (["k=1", "k=2"], "--set k: it is given twice. Give all of its values at once: k=VALUE,VALUE."),
        (["k=lag(1,2)"], "expected log(LOW,HIGH), uniform(LOW,HIGH) or int(LOW,HIGH), got lag(...)."),
        (["k=log(0,2)"], "--set k=log(0,2): expected finite numbers with 0 < LOW < HIGH."),
        (["k=uniform(2,1)"], "expected finite numbers with LOW < HIGH."),
        (["k=uniform(0,inf)"], "expected finite numbers"),
        (["k=int(1,2.5)"], "expected two whole numbers in int(LOW,HIGH)."),
        (["k=uniform(a,b)"], "expected two numbers in uniform(LOW,HIGH)."),
        (["k=uniform(0,1)"], "--set k: a range is for --random N or --sobol N. A grid needs values: k=1,2."),
        ([f"{k}={','.join(map(str, range(100)))}" for k in "abc"], "the sweep has 1,000,000 points, and 10,000 are"),
    ],
)
def test_a_grid_that_is_none(said: list[str], part: str) -> None:
    with pytest.raises(UsageError) as caught:
        space.grid(space.read_space(said))
    assert part in str(caught.value)


RANGES = ["a=log(1e-4,1e-1)", "b=uniform(-1,1)", "c=int(16,20)", "d=x,y"]


@pytest.mark.parametrize("draw", [space.random_points, space.sobol_points])
def test_drawn_points_are_distinct_in_their_ranges_and_the_same_for_a_seed(draw: Any) -> None:
    axes = space.read_space(RANGES)
    found = draw(axes, 100, 7)
    assert found == draw(axes, 100, 7) != draw(axes, 100, 8)
    assert len({json.dumps(each) for each in found}) == 100 and draw(axes, 10, 7) == found[:10]
    assert all(1e-4 <= each["a"] <= 1e-1 and -1 <= each["b"] <= 1 for each in found)
    assert {each["c"] for each in found} == {16, 17, 18, 19, 20} and {each["d"] for each in found} == {"x", "y"}
    assert 30 <= sum(each["a"] < 10**-2.5 for each in found) <= 70, "half of the decades"
    assert all(len(f"{each['a']:g}") <= 12 for each in found), "a config can be read"


@pytest.mark.parametrize("draw", [space.random_points, space.sobol_points])
def test_a_small_space_is_drawn_whole_and_not_beyond(draw: Any) -> None:
    axes = space.read_space(["a=int(1,3)", "b=x,y"])
    assert len(draw(axes, 6, 1)) == 6
    with pytest.raises(UsageError, match=r"7: the space has 6 points\. Ask for as many at most\."):
        draw(axes, 7, 1)
    with pytest.raises(UsageError, match=r"the sweep has 1,000,000 points, and 10,000 are the most"):
        draw(space.read_space(["a=uniform(0,1)"]), 10**6, 1)


def test_sobol_without_scipy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match="--optuna: the package `optuna` is not installed"):
        require_optuna()
    with pytest.raises(UsageError, match="--sobol: the package `scipy` is not installed"):
        space.sobol_points(space.read_space(["a=uniform(0,1)"]), 2, 1)


# ---------------------------------------------------------------------- halving


def at(value: float, *rungs: int, **more: bool) -> PointResult:
    return PointResult(max(rungs, default=0), dict.fromkeys(rungs, value), **more)


HALVING = Halving((10, 30, 90), GOAL)


def test_all_points_wait_at_a_rung_and_the_best_third_trains_on() -> None:
    losses = {f"{n:03d}": float(n) for n in range(1, 10)}
    step = HALVING.next(dict.fromkeys(losses, PointResult()))
    assert step.targets == dict.fromkeys(losses, 10) and not step.out
    some = {name: at(loss, 10) if loss > 1 else PointResult(9) for name, loss in losses.items()}
    assert HALVING.next(some).targets == {"001": 10}, "the others wait"
    there = {name: at(loss, 10) for name, loss in losses.items()}
    step = HALVING.next(there)
    assert step.targets == {"001": 30, "002": 30, "003": 30}
    assert step.out == {name: 10 for name, loss in losses.items() if loss > 3}
    later = there | {name: at(losses[name], 10, 30) for name in ("001", "002", "003")}
    assert HALVING.next(later).targets == {"001": 90} and HALVING.next(later).winner is None
    end = HALVING.next(later | {"001": at(1.0, 10, 30, 90)})
    assert not end.targets and end.winner == "001" and len(end.out) == 8


def test_failed_points_and_those_without_the_metric_are_the_worst() -> None:
    results = {"1": at(0.0, is_failed=True), "2": at(float("nan"), 10), "3": at(5.0, 10), "4": at(4.0, 10)}
    step = Halving((10, 30), GOAL, factor=2).next(results)
    assert step.targets == {"3": 30, "4": 30} and step.out == {"1": 10, "2": 10}
    failed = Halving((10,), GOAL).next({"1": at(0.0, is_failed=True)})
    assert not failed.targets and failed.winner is None and failed.out == {"1": 10}
    assert not failed.decided, "they may be trained again"


def test_more_is_better_and_equal_points_go_by_their_name() -> None:
    results = {"2": at(1.0, 10), "1": at(1.0, 10), "3": at(0.0, 10)}
    assert Halving((10,), Best("acc", is_least=False)).next(results).winner == "1"


def test_a_rung_is_decided_once() -> None:
    halving, names = Halving((10, 30), GOAL, 2), ("a", "b", "c", "d")
    there = {name: PointResult(10, {10: float(at)}) for at, name in enumerate(names)}
    first = halving.next(there)
    assert dict(first.targets) == {"a": 30, "b": 30} and first.decided == {10: {"a": 0, "b": 1, "c": 2, "d": 3}}
    thinned = there | {"a": PointResult(10, {10: 9.0}), "d": PointResult(10, {10: -1.0})}
    del thinned["c"]
    assert halving.next(thinned).targets.keys() == {"d"}
    assert halving.next(thinned, first.decided) == replace(first, out={"d": 10})


def test_what_a_point_does_after_it_is_out_changes_nothing() -> None:
    results = {"1": at(1.0, 10), "2": at(2.0, 10), "3": at(3.0, 10)}
    taken_up = results | {"3": PointResult(90, {10: 3.0, 30: 0.0, 90: 0.0})}
    assert HALVING.next(results) == HALVING.next(taken_up)


@given(losses=st.lists(st.floats(allow_nan=True) | st.none(), min_size=1, max_size=40), factor=st.integers(2, 5))
def test_a_halving_ends_and_keeps_the_lowest(losses: list[float | None], factor: int) -> None:
    halving = Halving((1, 2, 3), GOAL, factor)
    results = {f"{n:02d}": PointResult() for n in range(len(losses))}
    for _ in range(4):
        step = halving.next(results)
        for name, rung in step.targets.items():
            loss = losses[int(name)]
            known = results[name].at_rungs
            results[name] = (
                PointResult(0, known, is_failed=True) if loss is None else PointResult(rung, {**known, rung: loss})
            )
    assert not step.targets
    sound = [(loss, f"{n:02d}") for n, loss in enumerate(losses) if loss is not None and abs(loss) < float("inf")]
    assert step.winner == (min(sound)[1] if sound else None)


# ---------------------------------------------------------------------- the folder


def wanted(*said: str, **more: Any) -> SweepSpec:
    return SweepSpec(base="", set=said, **more)


def project(folder: Path) -> Path:
    (folder / "trainerd.toml").write_text(CONFIG, encoding="utf-8")
    return folder / "trainerd.toml"


def test_a_sweep_is_a_folder_of_configs_that_a_person_can_read(tmp_path: Path) -> None:
    sweep = make_sweep(project(tmp_path), wanted("params.rate=0.5,0.25", "params.units=3"), "lr")
    folder = tmp_path / "sweeps" / "lr"
    assert sorted(each.name for each in folder.iterdir()) == ["001.toml", "002.toml", "sweep.toml"]
    text = (folder / "002.toml").read_text()
    assert "# mine" in text and "rate = 0.25  # the rate" in text and 'level = "error"' in text
    config = parse.load(folder / "002.toml")
    assert config.folder == tmp_path and config.rundir == folder / "002" and config.entry == "job:job"
    assert (config.name, config.tags, config.params) == ("lr-002", ("a", "lr"), {"rate": 0.25, "units": 3})
    asked = tomllib.loads((folder / "sweep.toml").read_text())
    assert asked == {"base": "../../trainerd.toml", "set": ["params.rate=0.5,0.25", "params.units=3"]}
    points = Sweep.read(folder).points()
    assert [point.name for point in points] == ["001", "002"]
    assert points[1].values == {"params.rate": 0.25, "params.units": 3} and sweep.name == "lr"


def test_a_copy_of_a_point_is_whole_without_the_folder_of_the_sweep(tmp_path: Path) -> None:
    [point] = make_sweep(project(tmp_path), wanted("params.rate=0.5"), "lr").points()
    config = replace(parse.load(point.config), params={"rate": 0.25, "sizes": (1, 2)})  # as `--set` gives them
    files = JobFiles.of(config, point.config.read_text())
    assert (files.folder, files.logdir) == (tmp_path, "sweeps/lr/001")
    fetched = tmp_path / "fetched.toml"
    fetched.write_text(files.text)
    found = parse.load(fetched)
    assert (found.folder, found.params, found.rundir) == (tmp_path, config.params, config.rundir)


def test_each_point_has_a_copy_of_its_own(tmp_path: Path) -> None:
    base = project(tmp_path)
    base.write_text(f'{base.read_text()}\n[copy]\nto = "file:///mnt/nas/digits/"\nmax_mbit = 5\n')
    made = [parse.load(point.config).copy for point in make_sweep(base, wanted("params.rate=0.5,0.25"), "lr").points()]
    assert [(each.to, each.max_mbit) for each in made] == [
        ("file:///mnt/nas/digits-lr-001", 5.0),
        ("file:///mnt/nas/digits-lr-002", 5.0),
    ]


def test_sweeps_without_a_name_are_numbered(tmp_path: Path) -> None:
    path = project(tmp_path)
    own = tmp_path.name  # the queue has the sweeps of all projects
    assert [make_sweep(path, wanted("params.rate=1.0"), None).name for _ in range(2)] == [f"{own}-1", f"{own}-2"]


def test_a_script_without_a_config_is_swept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    script = tmp_path / "code" / "train.py"
    script.write_text("")
    [point] = make_sweep(script, wanted("params.rate=1.0"), "s").points()
    config = parse.load(point.config)
    assert (config.script_path, config.folder) == (script, tmp_path) and config.params == {"rate": 1.0}


@pytest.mark.parametrize(
    ("said", "more", "name", "part"),
    [
        (["max_step=1,2"], {}, "x", "--set max_step=1: this key does not exist. Did you mean `max_steps`?"),
        (["params.class=1,2"], {}, "x", "--set params.class=1: expected a name that Python takes"),
        (["checkpoint.keep_last=0"], {}, "x", "--set checkpoint.keep_last=0: expected a whole number >= 1"),
        (["logdir=a,b"], {}, "x", "--set logdir: a sweep gives each point its own."),
        (["params.a=1"], {}, "a/b", "--name: expected 1 to 64 printable characters, without a slash"),
        (["params.a=1"], {}, "a" * 60, "--name: expected 1 to 64 printable characters"),
        (["params.a=1"], {}, "a*", "--name: "),
        (["params.a=1"], {}, "taken", "exists and is not empty. Choose another --name."),
        (["params.a=1"], {"rungs": (1,)}, "x", "--rungs STEP,STEP needs a metric: --halve METRIC."),
        (["params.a=1"], {"sampler": "optuna", "count": 3}, "x", "--optuna needs --metric METRIC, and no --rungs"),
        (["max_steps=1,2"], {"metric": "min loss", "rungs": (2,)}, "x", "--set max_steps and --rungs contradict"),
        (["params.a=1"], {"count": 3}, "x", "sampler: 'grid' takes no `count`"),
        (["params.a=1"], {"sampler": "random"}, "x", "sampler: 'random' needs `count`, the number of points"),
        (["params.a=1"], {"metric": "min loss", "rungs": (2, 2)}, "x", "--rungs: expected steps that rise, got 2,2."),
    ],
)
def test_a_sweep_that_is_wrong_leaves_nothing(
    tmp_path: Path, said: list[str], more: dict[str, Any], name: str, part: str
) -> None:
    path = project(tmp_path)
    make_sweep(path, wanted("params.rate=1.0"), "taken")
    with pytest.raises(TrainerdError) as caught:
        make_sweep(path, wanted(*said, **more), name)
    assert part in str(caught.value)
    assert [each.name for each in (tmp_path / "sweeps").iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def job(rate, *, units=3): ...", ["rate", "units"]),
        ("def job(rate, **more): ...", None),
        ("@wrapped\ndef job(rate): ...", None),
        ("from other import job", None),
        ("if True:\n    def job(a): ...\nelse:\n    def job(b): ...", None),
        ("def job(rate: ...", None),
    ],
)
def test_the_source_says_which_parameters_a_function_takes(
    tmp_path: Path, source: str, names: list[str] | None
) -> None:
    (tmp_path / "job.py").write_text(source)
    assert written_params(tmp_path / "job.py", "job") == names
    assert written_params(tmp_path / "none.py", "job") is None


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import trainerd\np = trainerd.params(a=1, b=2)", ["a", "b"]),
        ("import trainerd\np = trainerd.params(**defaults)", None),
        ("params(a=1)", None),
    ],
)
def test_the_source_says_which_parameters_a_script_takes(tmp_path: Path, source: str, names: list[str] | None) -> None:
    (tmp_path / "train.py").write_text(source)
    assert written_params(tmp_path / "train.py", "") == names


def test_a_parameter_that_the_job_does_not_take_makes_no_sweep(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("def job(rate): ...\n")
    with pytest.raises(
        UsageError, match=r"--set params\.rat: the job 'job:job' has no such parameter\. Did you mean 'rate'"
    ):
        make_sweep(project(tmp_path), wanted("params.rat=1,2"), "x")
    assert not (tmp_path / "sweeps").exists()


def test_a_folder_that_is_no_sweep_and_a_wrong_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*sweep\.toml\. `trainerd sweep CONFIG"):
        Sweep.read(tmp_path)
    for text, part in (
        ('base = "a"\nset = ["k=1"]\nsampler = "grit"\n', "sampler: expected one of"),
        ('base = "a"\nset = ["k=1"]\nrungs = [1]\n', "needs a metric"),
        ('base = "a"\nset = ["k="]\n', "expected KEY=VALUE,VALUE"),
    ):
        (tmp_path / "sweep.toml").write_text(text)
        with pytest.raises(ConfigError, match=part):
            Sweep.read(tmp_path)
    (tmp_path / "sweep.toml").write_text('base = "a"\nset = ["max_steps=5,9"]\nmetric = "min loss"\nrungs = [1]\n')
    assert Sweep.read(tmp_path).spec.rungs == (1,), "an earlier version has made it"


# ---------------------------------------------------------------------- what the runs have reached


def trained(rundir: RunDirectory, max_steps: int, losses: dict[int, float], phase: Phase = Phase.FINISHED) -> None:
    """Leave a run as a process does that has made these checkpoints."""
    store = CheckpointStore(rundir)
    with claimed(rundir, "job:job") as reporter:
        for step, loss in losses.items():
            store.publish(FakeSnapshot(step, loss), About("finish", {"loss": loss}))
        found = catalogue.fields_of(rundir, catalogue.newest(rundir))
        reporter.update(**found, phase=phase, max_steps=max_steps)


def test_a_sweep_follows_its_runs_to_the_winner(cli: Cli, tmp_path: Path) -> None:
    project(tmp_path)
    code, printed = cli(
        *("sweep", "trainerd.toml", "--set", "params.rate=1.0,2.0,3.0,4.0", "--name", "lr"),
        *("--halve", "loss", "--rungs", "10,30", "--factor", "2"),
    )
    assert code == 0 and "made sweeps/lr: 4 points" in printed
    sweep = Sweep.read(tmp_path / "sweeps" / "lr")
    points = {point.name: point for point in sweep.points()}

    def following() -> dict[str, int | None]:
        return sweep.next({name: sweep.result(point) for name, point in points.items()})

    assert following() == dict.fromkeys(points, 10)
    printed = cli("sweep", "next", "sweeps/lr")[1]
    assert "run --config sweeps/lr/001.toml --max-steps 10\n" in printed and len(printed.splitlines()) == 4
    for number, loss in (("001", 4.0), ("002", 1.0), ("003", 2.0)):
        trained(points[number].rundir, 10, {10: loss})
    assert following() == {"004": 10}
    trained(points["004"].rundir, 10, {5: 0.5}, Phase.FAILED)
    assert following() == {"002": 30, "003": 30}
    trained(points["004"].rundir, 10, {10: 0.25})
    assert following() == {"002": 30, "003": 30}, "the rung is decided"
    decided = tomllib.loads((sweep.folder / "rungs.toml").read_text())["10"]
    assert decided["002"] == 1.0 and math.isnan(decided["004"])
    shown = cli("sweep", "show", "sweeps/lr")[1]
    assert "001     1.0    10     4  10  out at 10\n" in shown and "finished, to train to 30" in shown
    assert "The best is" not in shown
    trained(points["002"].rundir, 30, {30: 0.9})
    trained(points["003"].rundir, 30, {30: 0.8})
    assert following() == {} and cli("sweep", "next", "sweeps/lr") == (0, "")
    shown = cli("sweep", "show", "sweeps/lr")[1]
    assert "The best is 003." in shown and "export sweeps/lr best OUT` packages it." in shown
    found = json.loads(cli("sweep", "show", "sweeps/lr", "--json")[1])
    assert found["goal"] == "min loss" and [each["is_best"] for each in found["points"]] == [False, False, True, False]
    assert found["points"][2]["metric"] == 0.8 and found["points"][2]["metric_step"] == 30
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        assert cli("sweep", "show", "sweeps/lr", "--image", f"a{suffix}")[0] == 0
        assert (tmp_path / f"a{suffix}").read_bytes().startswith(start)
    assert "expected a .png or a .svg" in cli("sweep", "show", "sweeps/lr", "--image", "a.gif")[1]


def test_best_of_a_sweep_is_the_best_checkpoint_of_the_best_run(cli: Cli, tmp_path: Path) -> None:
    sweep = make_sweep(project(tmp_path), wanted("params.rate=1.0,2.0", metric="min loss", rungs=(10,)), "lr")

    def refused(*said: str) -> str:
        code, printed = cli("export", "sweeps/lr", *said, "out")
        assert code == 64
        return printed

    assert "is a sweep. Name its best checkpoint" in refused() and "is a sweep" in refused("5")
    assert "is not over: 2 runs must reach step 10. `--best loss` compares" in refused("best")
    assert "no run of sweeps/lr has a checkpoint yet" in refused("--best", "loss")
    one, two = sweep.points()
    trained(one.rundir, 10, {5: 0.4, 10: 0.5})
    trained(two.rundir, 10, {5: 0.1, 10: 0.6})
    assert "no run of sweeps/lr has a number for 'acc'. Metrics: loss." in refused("--best", "acc")
    assert best_of_sweep(sweep.folder) == (one.config, "min loss"), "by the value at the rung"
    assert best_of_sweep(sweep.folder, "loss") == (two.config, "min loss"), "by the best checkpoint"
    assert parse.load(one.config).checkpoint.best == "min loss", "which retention keeps"


def test_without_rungs_each_point_trains_to_its_own_end(tmp_path: Path) -> None:
    sweep = make_sweep(project(tmp_path), wanted("params.rate=1.0,2.0,3.0"), "lr")
    points = {point.name: point for point in sweep.points()}
    trained(points["001"].rundir, 10, {5: 0.25, 10: 0.5})
    trained(points["002"].rundir, 10, {5: 0.3}, Phase.PAUSED)
    results = {name: sweep.result(point) for name, point in points.items()}
    assert sweep.next(results) == {"002": None, "003": None}
    standing = read_standing(sweep)
    assert standing.best is not None and (standing.best.name, standing.best.metric_step) == ("001", 5)
    assert [each.state for each in standing.points] == ["finished", "paused", "not started"]
    assert read_standing(sweep, "accuracy").best is None


def test_optuna_chooses_each_point_by_the_results_before(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    project(tmp_path)
    asked = ["--set", "params.rate=log(1e-4,1.0)", "--set", "params.units=[1,2],[3]", "--set", "max_steps=int(5,9)"]
    code, printed = cli("sweep", ".", *asked, "--optuna", "30", "--metric", "loss", "--name", "o", "--no-queue")
    assert code == 0 and "made sweeps/o: Optuna will choose 30 points" in printed
    sweep = Sweep.read(tmp_path / "sweeps" / "o")

    def results() -> dict[str, PointResult]:
        return {point.name: sweep.result(point) for point in sweep.points()}

    def loss_of(point: SweepPoint) -> float:
        return abs(math.log10(float(point.values["params.rate"])) + 2)

    with monkeypatch.context() as patch:
        patch.setattr("trainerd.sweeps.sweep.write_atomic", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sweep.grow(results())
    [first] = sweep.grow(results())
    assert first.name == "001" and sweep.grow(results()) == [], "it is under way"
    assert sweep.grow({}) == [], "another process has made it since these results were read"
    assert [point.name for point in sweep.grow(results(), 3)] == ["002", "003"]
    assert cli("sweep", "next", "sweeps/o")[1].count(" run --config sweeps/o/00") == 3
    trained(sweep.points()[2].rundir, 9, {5: 1.0}, Phase.FAILED)
    (sweep.folder / "002.toml").unlink()
    assert [point.name for point in sweep.grow(results(), 2)] == ["004"], "what a person removes stays away"
    for _ in range(30):
        for point in sweep.points():
            if not (sweep.result(point).is_finished or sweep.result(point).is_failed):
                trained(point.rundir, 9, {9: loss_of(point)})
        sweep.grow(results())
    points = sweep.points()
    assert len(points) == 29 and sweep.next(results()) == {} and sweep.grow(results()) == []
    assert all(point.values["params.units"] in ((1, 2), (3,)) for point in points)
    early, late = sum(map(loss_of, points[:10])), sum(map(loss_of, points[20:]))
    assert late < early, "it has learned where the loss is low"
    assert read_standing(sweep).best is not None


def test_the_points_of_optuna_are_those_of_a_script_wherever_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    asked: dict[str, Any] = {"sampler": "optuna", "count": 2, "metric": "min loss"}
    sweep = make_sweep(tmp_path / "train.py", wanted("params.rate=1.0,2.0", **asked), "s")
    monkeypatch.chdir("/")
    [point] = sweep.grow({})
    config = parse.load(point.config)
    assert (config.script_path, config.rundir) == (tmp_path / "train.py", tmp_path / "sweeps" / "s" / "001")
    with pytest.raises(ConfigError, match="--set max_step=1: this key does not exist"):
        make_sweep(tmp_path / "train.py", wanted("max_step=1,2", **asked), "t")
    assert not (tmp_path / "sweeps" / "t").exists()


def test_a_run_that_ends_before_a_rung_is_compared_by_its_last_value(tmp_path: Path) -> None:
    sweep = make_sweep(project(tmp_path), wanted("params.rate=1.0", metric="min loss", rungs=(10, 30)), "lr")
    [point] = sweep.points()
    trained(point.rundir, 10, {7: 0.5})
    assert sweep.result(point).is_finished and sweep.next({"001": sweep.result(point)}) == {}


def test_the_metric_at_a_step_without_a_checkpoint_is_missing_without_a_curve(rundir: RunDirectory) -> None:
    trained(rundir, 10, {10: 0.5})
    assert metric_at(rundir, 10, GOAL) == 0.5 and metric_at(rundir, 9, GOAL) != metric_at(rundir, 9, GOAL)
