"""`trainerd doctor`: what would go wrong with a run, before it does."""
