"""What trainerd claims, measured beside its peers in one run: `python -m benchmarks`."""
