"""The definitions that a user hands over, and the code that calls them."""
