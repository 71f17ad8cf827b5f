"""Commands about the checkpoints of a run: one file each."""
