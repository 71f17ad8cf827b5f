"""`trainerd agent`: trains the runs of the queue, each when it may, as many at a time as there is room for."""
