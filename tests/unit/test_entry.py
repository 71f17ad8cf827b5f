"""From an entry to a job: everything that can be wrong with it, and the job's traceback alone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainerd.errors import EntryError, JobError
from trainerd.job.definition import GraphJob, Job, KerasJob, Program, Scheduled
from trainerd.job.entry import load_job
from trainerd.job.user_code import called_at_boundary, job_traceback, own_message


@pytest.fixture(autouse=True)
def fresh_modules() -> Iterator[None]:
    """Forget the modules that a test imported, and its folder."""
    modules, path = set(sys.modules), sys.path[:]
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def load(folder: Path, source: str, entry: str = "myjob:job") -> Job | GraphJob | KerasJob | Program | Scheduled:
    (folder / "myjob.py").write_text(source, encoding="utf-8")
    return load_job(entry, folder)


def message(folder: Path, source: str, entry: str = "myjob:job") -> str:
    with pytest.raises(EntryError) as caught:
        load(folder, source, entry)
    return str(caught.value)


# A Keras model, as far as it can be told without Keras.
KERAS = """\
Model = type("Model", (), {"__module__": "keras.src.models.model"})
Model = type("Mine", (Model,), {})
def job():
"""
GOOD = "import trainerd\ndef job():\n    return trainerd.Job(lambda: None)\n"


def test_a_function_an_attribute_and_a_job(tmp_path: Path) -> None:
    source = GOOD + "class Jobs:\n    one = staticmethod(job)\nready = job()\n"
    assert isinstance(load(tmp_path, source), Job)
    assert isinstance(load(tmp_path, source, "myjob:Jobs.one"), Job)
    assert isinstance(load(tmp_path, source, "myjob:ready"), Job)


@pytest.mark.parametrize(
    "step", ["lambda batch: None", "lambda *batch: None", "lambda batch, more=1: None", "print", "lambda b=1: None"]
)
def test_a_step_that_takes_a_batch_is_taken(tmp_path: Path, step: str) -> None:
    assert isinstance(load(tmp_path, GOOD.replace("lambda: None", f"{step}, dataset=[]")), Job)


def test_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    folder = tmp_path / "ü 'x\""
    folder.mkdir()
    assert isinstance(load(folder, GOOD), Job)


def test_a_function_of_one_argument_takes_the_supervisor(tmp_path: Path) -> None:
    found = load(tmp_path, "def main(supervisor, more=1):\n    return supervisor\n", "myjob:main")
    assert isinstance(found, Program) and found.function(7) == 7


@pytest.mark.parametrize(
    ("source", "entry", "parts"),
    [
        (GOOD, "nojob:job", ["there is no module 'nojob'", "looked for it in"]),
        (GOOD, "myjob:jib", ["has no 'jib'", "Did you mean 'job'?"]),
        ("import nothing_like_it", "myjob:job", ["does not import", "ModuleNotFoundError", 'myjob.py", line 1']),
        ("def job(:", "myjob:job", ["does not import", "SyntaxError", "line 1"]),
        ("raise SystemExit(3)", "myjob:job", ["ended with exit(3)"]),
        (
            "def job():\n    return [1]\n",
            "myjob:job",
            ["gave a list, and a job is needed: a trainerd.Job, GraphJob, KerasJob or Experiment."],
        ),
        (
            "def job():\n    pass\n",
            "myjob:job",
            ["gave None, and a job is needed. End the function with `return trainerd.Job(...)`"],
        ),
        (GOOD.replace("lambda: None", "3"), "myjob:job", ["train_step must be a function, and is 3"]),
        (
            "import trainerd\njob = trainerd.Job(lambda: 1.0, state=[1])\n",
            "myjob:job",
            ["state must be a dict of name to what is saved", "and is [1]"],
        ),
        ("job = 3\n", "myjob:job", ["gave an int, and a job is needed"]),
        ("def job():\n    raise SystemExit\n", "myjob:job", ["building the job ended with exit"]),
        (
            "def job():\n    return 1 / 0\n",
            "myjob:job",
            ["raised while it built", "line 2, in job", "ZeroDivisionError"],
        ),
        ("def job():\n    return 1, {}\n", "myjob:job", ["gave a tuple of an int, a dict, and a job is needed"]),
        (
            KERAS + "    return Model()\n",
            "myjob:job",
            ["gave a Mine, and", "Wrap the compiled model: trainerd.Ke"],
        ),
        (
            KERAS + "    return Model(), [1]\n",
            "myjob:job",
            ["gave a tuple of a Mine, a list, and", "Wrap the comp"],
        ),
        ("def job(x, y):\n    pass\n", "myjob:job", ["takes `x` and `y`. A function that returns a job takes no arg"]),
        ("def job(*, x):\n    pass\n", "myjob:job", ["takes `x`. A function that returns a job takes no arguments"]),
        (GOOD.replace("lambda", "lambda x, y"), "myjob:job", ["train_step` takes x, y, and the job has no dataset"]),
        (
            GOOD.replace("lambda: None", "lambda x, y: None, dataset=[]"),
            "myjob:job",
            ["`train_step` takes one argument, a batch of the dataset", "Write `def train_step(batch): x, y = batch`."],
        ),
        (
            GOOD.replace("lambda: None", "lambda: None, dataset=[]"),
            "myjob:job",
            ["`train_step` takes one argument, a batch of the dataset, and this one takes none. Write `def train_step"],
        ),
    ],
)
def test_what_can_be_wrong(tmp_path: Path, source: str, entry: str, parts: list[str]) -> None:
    text = message(tmp_path, source, entry)
    for part in parts:
        assert part in text, text
    assert "trainerd/sessions" not in text


def test_the_first_cause_is_shown_first() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        text = job_traceback(error)
    assert text.index("KeyError") < text.index("which led to") < text.index("ValueError: outer")


def test_frames_of_tensorflow_are_left_out_of_its_messages() -> None:
    site = next(p for p in sys.path if p.endswith("site-packages"))
    text = (
        "Graph execution error:\n\nDetected at node Assert defined at (most recent call last):\n"
        f'  File "{site}/tensorflow/python/x.py", line 3, in apply\n    return internal(x)\n'
        '  File "/scratch/__autograph_generated_file4x_1.py", line 9, in tf__train_step\n    ag__.ld(a)\n'
        '  File "/home/me/job.py", line 12, in train_step\n    tf.debugging.assert_less(a, b)\n'
        "\x1b[1massertion failed: [a is too large]\x1b[0m\n\t [[{{node Assert}}]] [Op:__inference_run_3]\n"
    )
    assert own_message(text).splitlines() == [
        "Graph execution error:",
        "Detected at node Assert defined at (most recent call last):",
        '  File "/home/me/job.py", line 12, in train_step',
        "    tf.debugging.assert_less(a, b)",
        "assertion failed: [a is too large]",
    ]


def test_the_message_after_a_librarys_frames_is_kept() -> None:
    site = next(p for p in sys.path if p.endswith("site-packages"))
    text = (
        'in user code:\n\n    File "/home/me/job.py", line 12, in train_step  *\n        return model(x)\n'
        f'    File "{site}/keras/src/layers/input_spec.py", line 239, in check\n        raise ValueError(\n\n'
        "    ValueError: Input 0 of layer 'dense' is incompatible\n    \n    Arguments received: x\n"
    )
    assert own_message(text).splitlines() == [
        "in user code:",
        '    File "/home/me/job.py", line 12, in train_step  *',
        "        return model(x)",
        "    ValueError: Input 0 of layer 'dense' is incompatible",
        "    Arguments received: x",
    ]


def test_a_keyboard_interrupt_is_the_jobs_where_no_ctrl_c_raises_one() -> None:
    """A trainer's own handler notes a SIGINT. Who reads from a terminal within `trainerd check` still ends it."""
    with pytest.raises(KeyboardInterrupt), called_at_boundary("the job's evaluate", 3):
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with pytest.raises(JobError, match="evaluate failed after step 3"), called_at_boundary("evaluate", 3):
            raise KeyboardInterrupt
    finally:
        signal.signal(signal.SIGINT, before)
