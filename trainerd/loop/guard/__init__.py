"""The guard: a pause or a save that comes while something takes long is served from a state held in memory."""
