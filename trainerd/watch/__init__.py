"""The watcher: a process of its own that reads what all runs say of themselves, and asks them through files."""
