"""Sweeps: many runs of one config, with other values of some keys."""
