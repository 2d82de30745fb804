"""x"""
from .path import Path
from .errors import UsageError
