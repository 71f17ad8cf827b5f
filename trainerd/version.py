"""The version of trainerd."""

__version__ = "0.3.0"
