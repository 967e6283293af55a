"""Data frames as features: what columns hold, how they are coded, and which share a lengthscale."""

from sharpgp.frames.column import Column
from sharpgp.frames.encoding import Encoded, TableEncoding
from sharpgp.frames.reading import is_frame

__all__ = ["Column", "Encoded", "TableEncoding", "is_frame"]
