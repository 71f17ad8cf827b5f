"""Models of TensorFlow 2: a job, or a compiled Keras model."""
