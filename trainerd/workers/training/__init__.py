"""The training of several workers: the session of one, the two sides of each command, the life of one process."""
