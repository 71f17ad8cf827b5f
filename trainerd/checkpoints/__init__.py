"""Checkpoints: what is written, when it counts, which may go, and how one is read back."""
