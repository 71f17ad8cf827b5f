"""A script as a job: it runs as `python train.py` does, and its `fit` is the run."""
