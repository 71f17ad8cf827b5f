"""The version of trainerd."""

__version__ = "0.2.0"
