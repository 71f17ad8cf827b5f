"""Checkpoints: writing, verifying, keeping, deleting and finding them."""
