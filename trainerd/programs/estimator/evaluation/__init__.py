"""Evaluations of an Estimator: their graph, their session, their curves."""
