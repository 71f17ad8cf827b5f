"""What a user hands over, and how it is called."""
