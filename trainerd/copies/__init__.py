"""Copies of a run elsewhere: what is copied, where it lies there, and how it comes back. Needs no TensorFlow."""
