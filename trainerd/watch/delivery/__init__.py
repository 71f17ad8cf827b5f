"""How a notice gets to a person: what waits is on disk, and a process for each channel sends it."""
