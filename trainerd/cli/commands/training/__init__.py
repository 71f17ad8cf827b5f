"""Commands that train a run, look at it, and ask it for something: one file each."""
