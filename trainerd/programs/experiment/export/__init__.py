"""What is exported after an evaluation."""
