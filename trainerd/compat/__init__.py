"""Names of TensorFlow's that are gone, for programs that change an import."""
