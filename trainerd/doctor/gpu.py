"""Checks whether there is a GPU, and whether the installed TensorFlow has what it takes to use it."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path

from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, warning, well

_DRIVER = Path("/proc/driver/nvidia/version")
_SECS = 10.0


def check(facts: Facts) -> Iterator[Finding]:
    """Ask the driver, and check what is installed; TensorFlow itself is not asked."""
    distributions = {found.metadata["Name"].lower() for found in metadata.distributions() if found.metadata["Name"]}
    unit = facts.service.name if facts.service is not None and facts.properties.get("PrivateDevices") == "yes" else None
    yield judge(listed(), _DRIVER.exists(), distributions, unit)


def listed() -> list[str]:
    """Return the list of `nvidia-smi -L`: a line for each GPU. It is empty if that cannot be run."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_SECS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line.partition(" (UUID")[0] for line in done.stdout.splitlines() if line.startswith("GPU ")]
    return lines if done.returncode == 0 else []


def judge(gpus: Collection[str], has_driver: bool, distributions: Collection[str], hiding_unit: str | None) -> Finding:
    """Return the finding on whether training can use a GPU.

    Args:
      gpus: what `nvidia-smi -L` lists.
      has_driver: whether the kernel has NVIDIA's driver.
      distributions: the names of the packages that are installed, in small letters.
      hiding_unit: the unit that trains, if it hides all devices.
    """
    if not gpus:
        if has_driver:
            cure = "type `nvidia-smi`: it says why. After an update of the driver, reboot."
            return warning("the kernel has NVIDIA's driver, and nvidia-smi lists no GPU", cure)
        return well("no NVIDIA GPU is seen: training uses the CPU")
    names = "; ".join(gpus)
    if hiding_unit is not None:
        cure = f"`systemctl edit {hiding_unit}` as docs/systemd.md says of a GPU."
        return warning(f"{names}, and the sandbox of {hiding_unit} hides it (PrivateDevices=yes)", cure)
    if "tensorflow-cpu" in distributions:
        return warning(f"{names}, and tensorflow-cpu is installed", "`pip install 'tensorflow[and-cuda]'`.")
    if not any(name.startswith("nvidia-cudnn") for name in distributions):
        cure = "`pip install 'tensorflow[and-cuda]'`, unless CUDA and cuDNN are installed for the whole machine."
        return warning(f"{names}, and no package with CUDA's libraries is installed", cure)
    return well(f"{names}; CUDA's libraries are installed beside TensorFlow")
