"""Tests of the queue and its agent, without TensorFlow."""
