"""`trainerd check` and `trainerd prove`: an interrupted run equals one without interruptions, bit for bit."""
