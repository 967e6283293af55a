"""The command ``sharpgp``, one module per group of commands."""

from sharpgp.cli import bench, examples, models
from sharpgp.cli._app import app

__all__ = ["app", "bench", "examples", "models"]
