"""Requests to a process that trains: files in the run directory, and its answers."""
