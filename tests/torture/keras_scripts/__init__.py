"""Scripts in the style of Keras's examples, each small enough to train in seconds."""
