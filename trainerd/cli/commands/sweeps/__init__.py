"""Commands for sweeps."""
