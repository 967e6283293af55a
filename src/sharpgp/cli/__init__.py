"""The command ``sharpgp``: ``fit``, ``predict``, ``report``, and the studies' commands."""

from sharpgp.cli import models
from sharpgp.cli._app import app

__all__ = ["app", "models"]
