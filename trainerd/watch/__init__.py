"""Watches all runs, and tells a person what happens to them. It reads files, and asks through files."""
