"""A job whose steps leave a trace, and the variables that two lives end with."""
