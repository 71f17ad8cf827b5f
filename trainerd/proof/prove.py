"""The proof: runs a job without a stop and with interruptions, and compares."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainerd import text
from trainerd.checkpoints import catalogue
from trainerd.checkpoints.lineage import SET, SKIP, Change
from trainerd.config.fingerprint import Fingerprint, builds_otherwise, differences
from trainerd.config.schema import CheckpointConfig, ClusterConfig, Config, EvaluateConfig
from trainerd.errors import ProofError
from trainerd.proof import trace
from trainerd.proof.life import begin, in_a_process, live
from trainerd.proof.plan import Interruption, InterruptionKind, Marks, plan
from trainerd.proof.trace import EPOCH, EVALUATION, INTERRUPTED, TraceDifference
from trainerd.proof.verdict import Done, Evidence, interruptions, missing, verdict
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state
from trainerd.workers.plan import free_ports

_ATTEMPTS = 3  # to interrupt a run before it is over
_HOW = {InterruptionKind.PAUSE: "paused", InterruptionKind.KILL: "killed"}


class Proof:
    """The proof of one job.

    Args:
      config: the job; its own run directory is not touched.
      folder: the folder of both runs.
      steps: how long each is.
      interruptions: how often one of them is interrupted.
      seed: of the plan.
      workers: how many there are in each life.
    """

    def __init__(
        self, config: Config, folder: Path, *, steps: int, interruptions: int, seed: int, workers: int = 1
    ) -> None:
        self._workers = workers
        self._original = config
        self._folder = folder
        self._steps = steps
        self._interruptions = interruptions
        self._seed = seed
        self._variables = 0
        self._done: list[Done] = []
        self._warnings: list[str] = []
        self._end = steps  # the dataset may have fewer

    def lines(self) -> Iterator[str]:
        """Prove it.

        Yields:
          A line for each thing that was done.

        Raises:
          ProofError: the runs differ; with the first difference.
        """
        lineage = self._lineage()
        self._warnings = begin(self._config("begin"), lineage, self._workers)
        yield from (f"warning: {warning}" for warning in self._warnings)
        yield "began: the state before the first step is saved, and both runs start from it"
        yield from (f"done again in both: {change}" for change in lineage)
        yield self._without_a_stop("whole")
        marks = self._marks("whole")
        yield from self._interrupted("broken", marks)
        if not self._done:
            raise ProofError(
                f"the job ended at step {self._end}, before the first interruption. Prove a job that trains longer: "
                "--steps N, and a dataset with that many batches."
            )
        difference = self._difference("whole", "broken")
        if difference is not None:
            yield "they differ; checking whether two runs without a stop differ too"
            yield self._without_a_stop("again")
            raise ProofError(verdict(self._evidence(difference), self._original))
        names, rows = trace.read(self._trace("whole"))
        _, repeated = trace.read(self._trace("broken"))
        metrics = [name for name in names if not name.startswith(trace.BATCH)]
        steps, variables = text.counted(len(rows), "step"), text.counted(self._variables, "variable")
        yield (
            f"compared: {steps} ({len(repeated) - len(rows)} of them done again after a kill), their batches and "
            f"{', '.join(metrics) or 'no metrics'}; {variables} at the end"
        )
        yield f"interrupted: {interruptions(self._done, marks)}"
        yield from missing(self._done, marks, self._interruptions, self._end)
        yield "The same, bit for bit."

    def _lineage(self) -> list[Change]:
        """Return the changes made to the user's own run at steps that the proof has: they are made to both runs."""
        newest = catalogue.newest(RunDirectory(self._original.rundir))
        known = newest.lineage if newest is not None else ()
        return [each for each in known if each.kind in (SET, SKIP) and each.step < self._steps]

    # ------------------------------------------------------------------ runs

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _config(self, name: str) -> Config:
        """Return the user's config, in a folder of its own, saving by steps so that a kill costs a few of them."""
        every = max(1, self._steps // (2 * (self._interruptions + 1)))
        evaluate_steps = self._original.evaluate.evaluate_steps or max(1, self._steps // 2)
        return replace(
            self._original,
            logdir=str(self._path(name)),
            max_steps=self._steps,
            target=None,
            checkpoint=CheckpointConfig(save_model_secs=0.0, save_model_steps=every, keep_last=2, minima=False),
            evaluate=EvaluateConfig(evaluate_secs=0.0, evaluate_steps=evaluate_steps),
            cluster=ClusterConfig(token=str(self._folder / "token")),
        )

    def _of_workers(self, config: Config) -> Config:
        """Return the config of a life of several workers, at ports that nobody has. All of them begin where one alone
        has."""
        if self._workers == 1:
            return config
        addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(self._workers))
        return replace(config, addresses=addresses, accept_changes=True)

    def _start_over(self, name: str) -> Config:
        shutil.copytree(self._path("begin"), self._path(name))
        return self._config(name)

    def _without_a_stop(self, name: str) -> str:
        config, begun = self._start_over(name), time.monotonic()
        live(self._of_workers(config), None)
        if not self._trace(name).exists():
            raise ProofError("the dataset has no batches, so no step could run.")
        self._end = self._reached(name)
        return f"without a stop: {text.counted(self._end, 'step')} in {text.seconds(time.monotonic() - begun)}"

    def _interrupted(self, name: str, marks: Marks) -> Iterator[str]:
        """Run it with interruptions. If it is over before one of them, interrupt another run, at other steps."""
        for seed in range(self._seed, self._seed + _ATTEMPTS):
            shutil.rmtree(self._path(name), ignore_errors=True)
            config, self._done = self._start_over(name), []
            planned = plan(self._end, self._interruptions, seed, marks)
            for interruption in planned:
                code = live(self._of_workers(config), interruption)
                if not self._happened(name, interruption, code):
                    yield f"{interruption.kind} at step {interruption.step}: the run was over first"
                    break
                yield self._note(name, interruption)
            if len(self._done) == len(planned):
                break
        live(self._of_workers(config), None)
        yield f"to the end: {text.counted(self._reached(name), 'step')}"

    def _happened(self, name: str, interruption: Interruption, code: int) -> bool:
        """Return whether a run was interrupted, and was not over yet."""
        if interruption.kind is InterruptionKind.KILL:
            was = code == -signal.SIGKILL
        else:
            state = read_state(RunDirectory(self._path(name)).state)
            was = state is not None and state.phase is Phase.PAUSED
        return was and self._reached(name) < self._end

    def _note(self, name: str, interruption: Interruption) -> str:
        resumes_at, step = self._reached(name), interruption.step
        in_evaluation = interruption.in_evaluation and step in trace.steps_marked(self._trace(name), INTERRUPTED)
        self._done.append(Done(interruption.kind, step, resumes_at, in_evaluation))
        where = ", in an evaluation" if in_evaluation else ""
        return f"{_HOW[interruption.kind]} at step {step}{where}: resumes after step {resumes_at}"

    def _marks(self, name: str) -> Marks:
        """Return the steps at which a run evaluates, and at which its epochs end."""
        found = (trace.steps_marked(self._trace(name), what) for what in (EVALUATION, EPOCH))
        return Marks(*([step for step in steps if step < self._end] for steps in found))

    def _trace(self, name: str) -> Path:
        return self._path(name) / "trace"

    def _reached(self, name: str) -> int:
        """Return the step of the newest checkpoint of a run."""
        newest = catalogue.newest(RunDirectory(self._path(name)))
        return newest.step if newest is not None else 0

    # ------------------------------------------------------------------ comparing

    def _difference(self, one: str, other: str) -> TraceDifference | None:
        """Return the first difference of two runs; None if there is none."""
        names, rows = trace.read(self._trace(one))
        _, others = trace.read(self._trace(other))
        if (found := trace.first_difference(names, rows, others)) is not None:
            return found
        steps = self._reached(one), self._reached(other)
        if steps[0] != steps[1]:
            return TraceDifference(min(steps), "the end", *steps)
        ours, theirs = (RunDirectory(self._path(name)).prefix(steps[0]) for name in (one, other))
        answer = self._folder / "answer"
        in_a_process(functools.partial(_compare, ours, theirs, answer), self._folder / "output")
        self._variables, variable = json.loads(answer.read_text())
        return None if variable is None else TraceDifference(steps[0], f"the variable {variable}", None, None)

    def _evidence(self, difference: TraceDifference) -> Evidence:
        whole, broken = (self._fingerprint(name) for name in ("whole", "broken"))
        return Evidence(
            difference,
            self._done[0].step,
            self._difference("whole", "again"),
            builds_otherwise(differences(whole, broken), broken),
            whole.get("input.pipeline", ""),
            self._warnings,
        )

    def _fingerprint(self, name: str) -> Fingerprint:
        newest = catalogue.newest(RunDirectory(self._path(name)))
        return newest.fingerprint if newest is not None else {}


def _compare(one: Path, other: Path, answer: Path) -> None:
    from trainerd.proof.traced import variables

    answer.write_text(json.dumps(variables.first_other_variable(one, other)))
