"""Models that a `model_fn` builds in TensorFlow 1 graphs."""
