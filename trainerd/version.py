"""The version of trainerd."""

__version__ = "0.1.0"
