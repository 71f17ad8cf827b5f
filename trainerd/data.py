"""Datasets that a user may build on."""

from __future__ import annotations

from trainerd.sessions.input.shuffled_indices import shuffled_indices

__all__ = ["shuffled_indices"]
