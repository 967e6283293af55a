"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "sharpgp"
author = "sharpgp contributors"
copyright = "2026, sharpgp contributors"
release = installed_version("sharpgp")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_numpy_docstring = True

html_theme = "furo"
html_title = "sharpgp"
