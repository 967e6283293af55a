"""User data to arrays: data frames, gaps, groups, noise, bounds, and checks of what looks wrong."""

from sharpgp.data.column import Column
from sharpgp.data.encoding import Encoded, TableEncoding
from sharpgp.data.reading import is_frame

__all__ = ["Column", "Encoded", "TableEncoding", "is_frame"]
