"""Builds the site and checks it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.site import check, generated, navigation
from tools.site.pages import ROOT, stage

BUILD = ROOT / "build" / "docs"  # the generator's project: it wants pages, config and output in one folder


def main() -> int:
    """Build the site into site/. 0 if nothing is wrong with it, 1 otherwise."""
    began = time.monotonic()
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = stage(BUILD / "pages", generated.pages())
    wrong = navigation.write(ROOT / "zensical.toml", BUILD / "zensical.toml", pages)
    wrong += generate()
    check.drop_empty_sitemap(BUILD / "site" / "sitemap.xml")
    wrong += check.wrong(BUILD / "site")
    if wrong:
        print(*wrong, f"The site is not built: {len(wrong)} mistakes.", sep="\n", file=sys.stderr)
        return 1
    site = ROOT / "site"
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(BUILD / "site", site)
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"site/: {len(pages)} pages, {size / 2**20:.1f} MiB, in {time.monotonic() - began:.0f} s")
    return 0


def generate() -> list[str]:
    """Run the generator. What it complains of: some of its warnings leave its exit code at 0."""
    program = Path(sys.executable).parent / "zensical"
    done = subprocess.run(
        [program, "build", "--strict", "--config-file", BUILD / "zensical.toml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)
    complains = "warning" in said.lower() or "error" in said.lower()
    if " found\n" in said:  # "2 issues found": what comes after it is the generator's own traceback
        said = said.partition("Traceback")[0]
    return [said] if complains or done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
