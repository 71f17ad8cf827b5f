"""Faults, many of each. `make test` runs the short form, `make torture` the long one, whose figures are in the docs."""
