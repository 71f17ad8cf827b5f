"""The commands that look at all runs."""
