"""The page as one document: its style and its script are in it, and nothing else may be loaded."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

_HERE = files("trainerd.watch.page")


@cache
def document(name: str, script: str | None = None) -> tuple[bytes, str]:
    """Put a document together.

    Args:
      name: its file.
      script: the file of its script; None for none.

    Returns:
      Its bytes, and its Content-Security-Policy.
    """
    html, style = _text(name), _text("page.css")
    code = _text(script) if script is not None else ""
    html = html.replace("<style></style>", f"<style>{style}</style>")
    html = html.replace("<script></script>", f"<script>{code}</script>")
    scripts = f"'{_hash(code)}'" if script is not None else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {scripts}; connect-src 'self'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return html.encode(), policy


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
