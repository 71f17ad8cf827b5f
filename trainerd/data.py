"""Datasets that a user may build on."""

from __future__ import annotations

from trainerd.sessions.input.shuffled_indices import shuffled_indices
from trainerd.workers.training.worker_batches import worker_batches

__all__ = ["shuffled_indices", "worker_batches"]
