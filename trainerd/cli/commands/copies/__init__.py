"""Commands that copy a run elsewhere, and bring it back."""
