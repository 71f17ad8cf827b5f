"""What TensorBoard reads."""
