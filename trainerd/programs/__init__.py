"""The APIs for a program that has a loop of its own: Supervisor, monitored sessions, hooks, Estimator, Experiment."""
