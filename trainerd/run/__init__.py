"""Signals, checkpoints and summaries for a loop that the user writes."""
