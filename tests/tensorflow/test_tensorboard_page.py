"""`trainerd tensorboard` as a person meets it: the command, and the real page in a real browser.

With TRAINERD_KEEP_SCREENSHOT=1 a longer run is trained, and the page is kept as docs/images/tensorboard.png.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tensorflow as tf

from tests.process.trainers import Forkserver
from tests.tensorflow.boards import Board, serving
from tests.tensorflow.chromium import Page, browser, fetch, poll
from trainerd.errors import UsageError

KEEP = os.environ.get("TRAINERD_KEEP_SCREENSHOT") == "1"
pytestmark = pytest.mark.long  # it starts a browser
SCREENSHOT = Path(__file__).resolve().parents[2] / "docs" / "images" / "tensorboard.png"

NAME = "it's 100% “schön” & new"
HEAD = f'entry = "trainerd.examples.digits:job"\nlogdir = "{NAME}"\n'
SHORT = "max_steps = 400\n[summary]\nsave_summaries_secs = 0.5\nmetrics_steps = 10\n"
LONG = "max_steps = 12000\n[summary]\nsave_summaries_secs = 3\nmetrics_steps = 40\nmetrics_secs = 0\n"
EVALUATE = f"[evaluate]\nevaluate_secs = {3 if KEEP else 0.5}\n"

# What the README shows.
TAGS = "^(loss|accuracy|val_accuracy|kernels/.*|weights/.*first/kernel|global_step/sec)$"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> Path:
    """A run of the digits job, in a folder with a name such as people give."""
    folder = tmp_path_factory.mktemp("page")
    config = folder / "trainerd.toml"
    config.write_text(
        'entry = "trainerd.examples.digits:job"\n'
        'logdir = "it\'s 100% “schön” & new"\n' + (LONG if KEEP else SHORT) + EVALUATE
    )
    trainer = forkserver.start(folder, run=["run"])
    assert trainer.end(180) == 0, trainer.text
    return folder / NAME


@pytest.fixture(scope="module")
def board(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with serving(logdir, tmp_path_factory.mktemp("board") / "output") as board:
        board.wait_for_step("loss", 12000 if KEEP else 400)
        yield board


@pytest.fixture(scope="module")
def page(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The Time Series tab, with the cards that matter."""
    with browser(tmp_path_factory.mktemp("browser")) as page:
        page.open(f"{board.url}?tagFilter={TAGS}#timeseries")
        poll(lambda: page.run(CARDS), "TensorBoard's page to show its cards", 120)
        page.run(CLOSE_SETTINGS)
        yield page


CARDS = "return [...document.querySelectorAll('card-view')].length"
# It takes the room of a column of cards.
CLOSE_SETTINGS = "document.querySelector('button[aria-label=\"Close side pane\"]')?.click()"

# Where a card's curve is drawn: the card is found by its heading, as a person finds it.
CURVE = """
for (const card of document.querySelectorAll('scalar-card')) {
  if (card.querySelector('tb-truncated-path')?.title !== arguments[0]) continue;
  const drawn = card.querySelector('line-chart canvas, line-chart .series-view svg path');
  if (!drawn) return null;
  card.scrollIntoView({block: 'center'});
  const box = (drawn.closest('svg') ?? drawn).getBoundingClientRect();
  return [box.left, box.top, box.width, box.height].map(Math.round);
}
return null;
"""
IMAGE = """
for (const card of document.querySelectorAll('image-card')) {
  if (!card.querySelector('tb-truncated-path')?.title.startsWith(arguments[0])) continue;
  const image = card.querySelector('img');
  if (!image?.complete) return null;
  return [image.naturalWidth, image.naturalHeight, image.alt];
}
return null;
"""


def colored(png: bytes, box: list[int]) -> int:
    """How many pixels of a part of a picture have a color: axes and grid are gray, a curve is not."""
    left, top, width, height = box
    part = tf.cast(tf.io.decode_png(png, channels=3)[top : top + height, left : left + width], tf.int32)
    return int(tf.reduce_sum(tf.cast(tf.reduce_max(part, -1) - tf.reduce_min(part, -1) > 20, tf.int32)))


@pytest.mark.parametrize("tag", ["loss", "accuracy", "val_accuracy"])
def test_the_curve_is_drawn(page: Page, tag: str) -> None:
    def is_drawn() -> bool:
        box: list[int] | None = page.run(CURVE, tag)
        return box is not None and colored(page.screenshot(), box) > 50

    poll(is_drawn, f"the curve of {tag}", 120)


def test_the_kernels_are_shown(page: Page) -> None:
    width, height, alt = poll(lambda: page.run(IMAGE, "kernels/"), "the picture of the kernels", 120)
    assert (width, height) == (15, 15), "sixteen kernels of 3×3 with a pixel between"
    assert re.fullmatch(r"Image at step \d+", alt)


def test_the_screenshot_of_the_readme(page: Page, logdir: Path) -> None:
    """It is what a person sees first. Kept only when it is asked for, so that a test leaves no file behind."""
    page.run("document.querySelector('card-view').scrollIntoView({block: 'end'})")
    time.sleep(2 if KEEP else 0)  # animations
    png = page.screenshot()
    height, width, _ = tf.io.decode_png(png).shape
    assert (width, height) == (1400, 900)
    assert len(png) < 300_000
    if KEEP:
        SCREENSHOT.parent.mkdir(exist_ok=True)
        SCREENSHOT.write_bytes(png)


def test_the_command_says_its_url_and_nothing_of_tensorflow(board: Board) -> None:
    assert re.search(r"^TensorBoard \S+ at http://127\.0\.0\.1:\d+/ \(Press CTRL\+C to quit\)$", board.said, re.M)
    for noise in ("oneDNN", "cuda", "absl", "rebuild TensorFlow", "Traceback"):
        assert noise not in board.said


def test_it_is_served_to_this_machine_only(board: Board) -> None:
    server = psutil.Process(board.process.pid)
    listening = [
        connection.laddr.ip
        for process in (server, *server.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening and set(listening) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("loader", ["--load_fast=true", "--load_fast=false"])
def test_ctrl_c_ends_it_and_all_that_it_started(logdir: Path, tmp_path: Path, number: int, loader: str) -> None:
    with serving(logdir, tmp_path / "output", loader) as board:
        children = psutil.Process(board.process.pid).children(recursive=True)
        board.process.send_signal(number)
        assert board.process.wait(60) == 0, board.said
        assert "Traceback" not in board.said
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive


def tensorboard(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainerd", "tensorboard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_port_in_use_is_said_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tensorboard("--logdir", str(tmp_path), "--port", str(port))
    assert done.returncode == UsageError.exit_code
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr and "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_flag_of_tensorboards_is_its_own_message(tmp_path: Path) -> None:
    done = tensorboard("--logdir", str(tmp_path), "--port", "0", "--bogus")
    assert done.returncode != 0
    assert "--bogus" in done.stderr and "Traceback" not in done.stderr


def test_a_run_that_is_not_there_yet_is_said_and_not_made_up(tmp_path: Path) -> None:
    missing = tmp_path / "no such run"
    with serving(missing, tmp_path / "output") as board:
        assert f"There is no {missing} yet" in board.said
        assert json.loads(fetch(f"{board.url}data/runs")) == []
    assert not missing.exists()


def test_several_runs_stand_side_by_side(logdir: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("first", "a second ä"):
        (runs / name).symlink_to(logdir)
    with serving(runs, tmp_path / "output") as board:

        def names() -> Any:
            return sorted(json.loads(fetch(f"{board.url}data/runs"))) == ["a second ä", "first"]

        poll(names, "both runs")
