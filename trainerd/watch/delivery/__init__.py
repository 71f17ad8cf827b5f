"""The way of a notice to a person: notices that wait are on disk, and one process for each channel sends them."""
