"""Rehearses an upgrade: `trainerd doctor --python`."""
