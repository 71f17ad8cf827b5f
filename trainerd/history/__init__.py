"""The history of a run, as its checkpoints record it."""
