"""The run directory: its paths, its lock, its state.json, and the request files."""
