"""Sessions: how the steps of one kind of job are run. They know nothing of supervisors and daemons."""
