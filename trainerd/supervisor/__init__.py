"""The Supervisor: the loop, the flag, what is done at boundaries, and when."""
