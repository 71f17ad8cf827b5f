"""The tutorials, each typed on a bare system by a user without rights, who has the wheel and the page and nothing else.

What of them needs systemd is typed in tests/systemd.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.bootstrap import HOME, PREFIX, USER
from tests.packaging.root import Root
from tests.packaging.suites import on_the_first
from tests.pages import ROOT, TUTORIALS, script_of, write_files

MINUTES = 10.0  # what each of them says that it takes


@on_the_first
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_works_as_it_is_typed(root: Root, page: str) -> None:
    folder = f"{HOME}/{Path(page).stem}"
    root.run("mkdir", folder, user=USER, home=HOME)
    write_files(ROOT / page, root.inside(folder))
    script = script_of(ROOT / page)
    assert script.count("trainerd ") >= 5
    activated = f"PATH={PREFIX}/bin:/usr/local/bin:/usr/bin:/bin"
    root.run(activated, f"USER={USER}", "bash", "-euc", f"cd {folder}\n{script}", user=USER, home=HOME, minutes=MINUTES)
