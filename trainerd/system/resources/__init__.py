"""File systems, control groups, and folders in memory."""
