"""Hooks for the steps of TensorFlow 2 functions; `trainerd.hooks` has their names."""
