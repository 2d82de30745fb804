"""The version of this distribution, in one place: the build reads it, too."""

__version__ = "0.1.0"
