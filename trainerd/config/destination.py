"""Reads the URL of a copy's destination. Nothing is connected to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlsplit

# Each scheme, with what its URL names before the path.
SCHEMES = {
    "s3": "a bucket",
    "gs": "a bucket",
    "az": "a container",
    "file": "",
    "sftp": "a host",
    "webdav": "a host",
    "webdavs": "a host",
    "rclone": "a remote of rclone.conf",
}
_EXAMPLES = "s3://bucket/runs/digits, file:///mnt/nas/digits or sftp://host/srv/digits"
_WITH_USER = ("sftp", "webdav", "webdavs")
WHERE_SECRETS_GO = (
    "Credentials go into the environment or into a file that only you may read: see the page "
    '"Copies on another machine or in a bucket"'
)


@dataclass(frozen=True)
class Destination:
    """A place for the copy of one run.

    Attributes:
      scheme: a key of `SCHEMES`.
      host: the bucket, container, host or remote; empty for `file`.
      path: the folder there, without slashes at its ends; absolute for `file`.
      user: the user at the host; empty if the URL names none.
      port: the port of the host; None for the usual one.
    """

    scheme: str
    host: str
    path: str
    user: str = ""
    port: int | None = None

    @classmethod
    def parse(cls, url: str) -> Destination:
        """Read a URL.

        Raises:
          ValueError: it is not one. The message has no secret of it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"it is not a URL ({error}). Examples: {_EXAMPLES}") from None
        if "://" not in url or parts.scheme not in SCHEMES:
            raise ValueError(
                f"expected a URL that begins with {', '.join(f'{each}://' for each in SCHEMES)}. Examples: {_EXAMPLES}"
            )
        if parts.password is not None or parts.query or parts.fragment:
            raise ValueError(f"the URL may not hold credentials, a `?` or a `#`. {WHERE_SECRETS_GO}")
        if (parts.username is not None and parts.scheme not in _WITH_USER) or (port and parts.scheme not in _WITH_USER):
            raise ValueError(f"{parts.scheme}:// takes neither a user nor a port. Examples: {_EXAMPLES}")
        path = unquote(parts.path)
        _require_path(parts.scheme, path)
        if parts.scheme == "file":
            if parts.netloc not in ("", "localhost"):
                raise ValueError(f"file:// takes an absolute path, such as file:///{parts.netloc}{path}")
            return cls("file", "", path.rstrip("/"))
        host = (parts.hostname or "") if parts.scheme in _WITH_USER else unquote(parts.netloc)
        if not host:
            raise ValueError(f"{parts.scheme}:// needs {SCHEMES[parts.scheme]}. Examples: {_EXAMPLES}")
        return cls(parts.scheme, host, path.strip("/"), unquote(parts.username or ""), port)

    def beside(self, name: str) -> Destination:
        """Return the place for the copy of another run, beside this one."""
        return replace(self, path=f"{self.path}-{name}")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{quote(self.user)}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{user}{host}{port}/{quote(self.path.lstrip('/'))}"


def _require_path(scheme: str, path: str) -> None:
    """Require a folder of its own for the copy: nothing else may lie there."""
    folders = path.strip("/").split("/")
    if not all(folders) or {".", ".."} & set(folders):
        raise ValueError(f"{scheme}:// needs a path to a folder for this run. Examples: {_EXAMPLES}")
    if not path.isprintable():
        raise ValueError(f"the path {path!r} has characters that cannot be printed")
