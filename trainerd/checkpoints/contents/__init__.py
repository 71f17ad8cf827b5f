"""The contents of a checkpoint."""
