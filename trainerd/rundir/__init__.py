"""The run directory: its paths, its lock, its state.json, and the files that ask for something."""
