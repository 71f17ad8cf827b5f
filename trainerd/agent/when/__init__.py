"""When a run may train."""
