"""The minima of the loss: how they are found, and how their state is kept."""
