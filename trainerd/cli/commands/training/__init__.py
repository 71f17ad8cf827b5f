"""Commands that train a run, show it, and ask it for something: one file each."""
