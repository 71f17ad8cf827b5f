"""The loop: steps, and at each boundary what is due."""
