"""Jobs that ship with trainerd."""
