"""Only a version, for the engine beside it."""

__version__ = "0"
