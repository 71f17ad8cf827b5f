"""Recordings of the real program in a terminal: `python -m tools.recording` writes them as animated pictures."""
