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
    "job": "Jobs",
    "checkpoints": "Python state",
    "sessions": "Devices",
    "workers": "Clusters",
    "supervisor": "Supervisor",
    "monitored": "Monitored sessions",
    "estimator": "Estimators",
    "experiment": "Experiments",
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


def pages() -> dict[PurePosixPath, str]:
    """A page for each room of the public names, and one for each public module.

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
        reference.add(room, ROOMS[room], names)
    for title in MODULES:
        module = package[title.removeprefix("trainerd.")]
        names = [(f"{title}.{name}", target) for name, target in _exported(module)]
        reference.add(title, title, names, module.docstring.value if module.docstring else "")
    if wrong := docstrings.wrong(package[target.removeprefix("trainerd.")] for target in reference.places):
        raise SystemExit("\n".join(wrong))
    return reference.pages


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
        self.pages[FOLDER / f"{stem}.md"] = "\n".join(parts)
        self.places |= {target: f"{stem}.md#{target}" for _, target in own}

    def _is_ours(self, target: str) -> bool:
        room, _, path = target.partition(".")
        return room == "trainerd" and self._package[path].kind is not griffe.Kind.ATTRIBUTE
