"""packaging/gpu_check.py, on logical devices of the CPU."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.conftest import Fork

PROGRAM = str(Path(__file__).parents[2] / "packaging" / "gpu_check.py")
NUMBER = r"\d+(\.\d+)?"


@pytest.mark.long
def test_gpu_check_prints_a_row_for_each_part(fork: Fork, tmp_path: Path) -> None:
    check = fork(tmp_path, program=PROGRAM, arguments=["--quick", "--logical", "2"])

    def folders() -> list[Path]:
        return list(Path(tempfile.gettempdir()).glob(f"trainerd-gpu-check-{check.pid}-*"))

    check.until_printed("versions")
    assert len(folders()) == 1
    code = check.end(600)
    table = dict(re.findall(r"^\| (.+?) \| (.+) \|$", check.text, re.MULTILINE))
    assert code == 0, check.text
    assert list(table) == [
        "what",
        "versions",
        "devices",
        "driver",
        "interruptions, 1 device",
        "interruptions, 2 devices",
        '`snapshot = "share"`',
        '`snapshot = "copy"`',
        "speed, 1 device",
        "speed, 2 devices",
        "scaling, 2 devices",
    ]
    assert re.match(r"Python 3\..+<br>TensorFlow 2\..+<br>Keras 3\..+<br>trainerd \d", table["versions"])
    assert table["devices"] == "2 devices of the CPU, logical"
    for devices in ("1 device", "2 devices"):
        assert table[f"interruptions, {devices}"].startswith("The same, bit for bit.")
        assert "1 pause and 1 kill" in table[f"interruptions, {devices}"]
        assert re.search(rf"trainerd {NUMBER} steps/s.+`fit` {NUMBER} .+ratio {NUMBER}$", table[f"speed, {devices}"])
    for mode in ("share", "copy"):
        row = table[f'`snapshot = "{mode}"`']
        assert re.match(rf"device memory: no figure on a CPU<br>a step takes {NUMBER} ms; a checkpoint adds", row)
    assert re.match(rf"\d+ examples/s; {NUMBER} × the examples/s", table["scaling, 2 devices"])
    assert folders() == [] and list(tmp_path.iterdir()) == [check.output]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--devices", "0"], "--devices: expected 1 or more, got 0"),
        (["--devices", "3", "--logical", "2"], "--devices: expected 2 or less, as many as there are, got 3"),
        ([], "TensorFlow finds no GPU. Install tensorflow[and-cuda], or try --logical 2"),
    ],
)
def test_gpu_check_rejects_devices_that_are_not_there(
    fork: Fork, tmp_path: Path, options: list[str], reason: str
) -> None:
    check = fork(tmp_path, program=PROGRAM, arguments=options, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert check.end() == 2 and reason in check.text, check.text
    assert "| what |" not in check.text
