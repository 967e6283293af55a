"""``python -m sharpgp`` is the command ``sharpgp``."""

from sharpgp.cli import app

app(prog_name="sharpgp")
