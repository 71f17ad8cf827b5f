"""TensorFlow 2 functions."""
