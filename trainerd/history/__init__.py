"""The history of a run: what its checkpoints tell."""
