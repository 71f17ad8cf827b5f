"""What a checkpoint holds."""
