"""The command ``sharpgp``: ``fit``, ``predict``, ``report``, ``demo``, and others' commands."""

from sharpgp.cli import demo, models
from sharpgp.cli._app import app

__all__ = ["app", "demo", "models"]
