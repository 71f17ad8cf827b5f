"""The commands that read all runs."""
