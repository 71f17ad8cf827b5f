"""The dataset of a run: its stages, and the position in it."""
