"""`trainerd.Supervisor`."""
