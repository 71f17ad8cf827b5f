"""What is done with old checkpoints: they are evaluated, and one is packaged for use elsewhere."""
