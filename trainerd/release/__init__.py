"""The uses of old checkpoints: they are evaluated, and one is packaged for use elsewhere."""
