"""The engine of a cluster: TensorFlow's multi-worker strategy, used thinly. Imports TensorFlow."""
