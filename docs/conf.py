"""Sphinx configuration. Offline: no intersphinx, no web fonts, no scripts from elsewhere."""

import gc
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
gc.set_threshold(200_000, 50, 1000)  # the nodes of all pages stay: to look through them again takes a quarter of it all

import refnum  # noqa: E402  (the path comes first)

project = "refnum"
author = "The refnum authors"
copyright = "2026, the refnum authors. Apache-2.0"
version = release = refnum.__version__

extensions = ["myst_parser", "refnum_clauses", "refnum_tables", "refnum_examples", "refnum_reference"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext", "specification.md"]
nitpicky = True

html_theme = "furo"
html_title = f"refnum {version}"
html_static_path = ["_static"]
html_css_files = ["refnum.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
