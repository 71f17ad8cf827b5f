"""`trainerd prove`: a run that was interrupted is the run that was not, step by step and bit for bit."""
