"""`trainerd.Experiment` and `trainerd.train_and_evaluate`: training, evaluations and exports, on a schedule."""
