"""One model on several machines: who is there, how they talk, how they train together."""
