"""The changes to the course of a run that trains: it goes back, a number is set, batches are skipped."""
