"""The reference of the public names, from their docstrings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

import griffe

from tools.site import docstrings
from tools.site.pages import ROOT

FOLDER = PurePosixPath("reference/api")
# The rooms whose names `import trainerd` gives, each with the title of their page.
ROOMS = {
    "job": "Job, KerasJob, GraphJob",
    "checkpoints": "Python state: keep",
    "sessions": "Devices: strategy",
    "workers": "Workers: cluster",
    "supervisor": "Supervisor",
    "monitored": "MonitoredSession",
    "experiment": "Experiment",
    "estimator": "Estimator",
    "errors": "Errors",
}
MODULES = (
    "trainerd.keras",
    "trainerd.data",
    "trainerd.hooks",
    "trainerd.compat.estimator",
    "trainerd.compat.estimator.experimental",
    "trainerd.compat.estimator.export",
    "trainerd.compat.estimator.inputs",
)
_FIRST = ("Job", "KerasJob")  # on their page; other names follow in the order of the alphabet


def pages() -> dict[PurePosixPath, str]:
    """Return a page for each room of the public names, one for each public module, and one that lists all names.

    Raises:
      SystemExit: a docstring is not what its code says.
    """
    package = griffe.load("trainerd", search_paths=[ROOT], docstring_parser="google", resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    reference = _Reference(package)
    rooms: dict[str, list[tuple[str, str]]] = {room: [] for room in ROOMS}
    for name, target in _exported(package):
        room = target.removeprefix("trainerd.").removeprefix("programs.").split(".")[0]
        rooms[room].append((f"trainerd.{name}", target))
    for room, names in rooms.items():
        reference.add(room, ROOMS[room], sorted(names, key=lambda name: _rank(name[0])))
    for title in MODULES:
        module = package[title.removeprefix("trainerd.")]
        names = [(f"{title}.{name}", target) for name, target in _exported(module)]
        reference.add(title, title, names, module.docstring.value if module.docstring else "")
    if wrong := docstrings.wrong(package[target.removeprefix("trainerd.")] for target in reference.places):
        raise SystemExit("\n".join(wrong))
    return {FOLDER / "index.md": reference.index(), **reference.pages}


def _rank(name: str) -> int:
    """Return where a public name comes on its page."""
    short = name.rpartition(".")[2]
    return _FIRST.index(short) if short in _FIRST else len(_FIRST)


def _exported(module: griffe.Object | griffe.Alias) -> Iterator[tuple[str, str]]:
    """The public names of a module, each with where it is defined; without its modules, which have their pages."""
    for name in map(str, module.exports or ()):
        member = module.members[name]
        if not name.startswith("__") and member.kind is not griffe.Kind.MODULE:
            yield name, member.target_path if isinstance(member, griffe.Alias) else member.path


class _Reference:
    """The pages of the reference, each public thing on one of them."""

    def __init__(self, package: griffe.Module) -> None:
        self.pages: dict[PurePosixPath, str] = {}
        self.places: dict[str, str] = {}  # where each thing is described, as a link between these pages
        self._package = package
        self._lists: list[str] = []

    def add(self, stem: str, title: str, names: list[tuple[str, str]], text: str = "") -> None:
        """Add a page that mkdocstrings fills; what is described already, or is TensorFlow's own, is only named."""
        own = [(name, target) for name, target in names if target not in self.places and self._is_ours(target)]
        elsewhere = [f"- [`{name}`]({self.places[target]})" for name, target in names if target in self.places]
        foreign = [f"- `{name}`" for name, target in names if not self._is_ours(target)]
        parts = [f"# {title}\n", text, ""]
        parts += [f"::: {target}\n    options:\n      heading: {name}\n" for name, target in own]
        if elsewhere:
            parts += ["## Described elsewhere\n", *elsewhere, ""]
        if foreign:
            parts += ["## TensorFlow's own, under these names\n", *foreign, ""]
        parts += ["## See also\n", "- [All public names](index.md)", "- [Messages](../messages.md)", ""]
        self.pages[FOLDER / f"{stem}.md"] = "\n".join(parts)
        rows = [f"| [`{name}`]({stem}.md#{target}) | {self._summary(target)} |" for name, target in own]
        self._lists += [f"\n## [{title}]({stem}.md)\n", "| name | what it is |", "|---|---|", *rows] if own else []
        self.places |= {target: f"{stem}.md#{target}" for _, target in own}

    def index(self) -> str:
        """Return the page that lists every public name."""
        return "\n".join(["# Python\n", "The public names of the package, each with its page.", *self._lists]) + "\n"

    def _summary(self, target: str) -> str:
        docstring = self._package[target.removeprefix("trainerd.")].docstring
        return " ".join(docstring.value.partition("\n\n")[0].split()).replace("|", "\\|") if docstring else ""

    def _is_ours(self, target: str) -> bool:
        room, _, path = target.partition(".")
        return room == "trainerd" and self._package[path].kind is not griffe.Kind.ATTRIBUTE
