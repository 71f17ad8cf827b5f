"""The page as one document: its style and its script are in it, and nothing else may be loaded."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

_HERE = files("trainerd.watch.page")


@cache
def document(name: str, *scripts: str) -> tuple[bytes, str]:
    """Put a document together.

    Args:
      name: its file.
      scripts: the files of its script, in their order; none for a document without one.

    Returns:
      Its bytes, and its Content-Security-Policy.
    """
    html, style = _text(name), _text("page.css")
    code = "".join(map(_text, scripts))
    html = html.replace("<style></style>", f"<style>{style}</style>")
    html = html.replace("<script></script>", f"<script>{code}</script>")
    allowed = f"'{_hash(code)}'" if scripts else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {allowed}; connect-src 'self'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return html.encode(), policy


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
