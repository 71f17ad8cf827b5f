"""Exports after an evaluation."""
