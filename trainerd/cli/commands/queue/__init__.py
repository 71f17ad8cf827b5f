"""Commands of the queue and its agent."""
