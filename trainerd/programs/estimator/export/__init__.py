"""Exports of an Estimator as a SavedModel."""
