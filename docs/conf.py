"""Sphinx configuration."""

import sys
import tomllib
import warnings
from pathlib import Path

import sharpgp

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "sharpgp"
author = "sharpgp contributors"
copyright = "2026, sharpgp contributors"
release = sharpgp.__version__
_pyproject = Path(sharpgp.__file__).parents[2] / "pyproject.toml"
_repository = tomllib.loads(_pyproject.read_text())["project"].get("urls", {}).get("Repository")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "mathml",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples/GALLERY_HEADER.rst"]

html_math_renderer = "mathml"
autosummary_generate = False  # the pages are there; only lists with summaries are made
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say more: shapes
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_ivar = True  # attributes in the class, not as entries of their own
napoleon_use_rtype = False
# Several classes have attributes of one name, such as n_train, which napoleon makes references.
suppress_warnings = ["ref.python"]
strip_signature_backslash = True  # napoleon then keeps the underscore of posterior_ and its kin

# Warnings of examples are shown without the folder that they happened to be built in.
warnings.formatwarning = lambda message, category, *_, **__: f"{category.__name__}: {message}\n"

# Examples run when the site is built; one that fails stops the build.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "capture_repr": (),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "plot_gallery": True,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,  # its page would ask the network for scripts
    # Scripts that need more than the docs' own packages are shown, and not run.
    "filename_pattern": r"/plot_",
    "within_subsection_order": "gallery_order.ByUse",
}

html_theme = "furo"
html_title = f"sharpgp {release}"
# The repository is linked as soon as pyproject.toml says whose it is.
if _repository:
    html_theme_options = {
        "source_repository": _repository,
        "source_branch": "main",
        "source_directory": "docs/",
        "footer_icons": [{"name": "Repository", "url": _repository, "html": "Repository"}],
    }
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
