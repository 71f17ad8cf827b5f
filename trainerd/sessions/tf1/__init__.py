"""TensorFlow 1 graphs."""
