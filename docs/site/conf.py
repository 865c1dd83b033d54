"""Settings of the site. scripts/build_site.sh stages the pages (docs/site/stage.py), and passes
the folders of the Python package and of Doxygen's output in variables."""

import os
import re
import sys

sys.path.insert(0, os.environ["SITE_PYTHON"])

project = "sluice"
author = "the authors of sluice"
project_copyright = "the authors of sluice, Apache-2.0"
version = release = os.environ["SITE_VERSION"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "breathe",
]
source_suffix = {".md": "markdown"}
root_doc = "index"
language = "en"

# Headings are targets, as on GitHub: page.md#a-heading.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# A page may begin with the second level, as generated ones do.
suppress_warnings = []

autodoc_typehints = "signature"
# Plug-ins are documented without their frameworks, which the environment of the site has not.
autodoc_mock_imports = ["lightning", "torchft"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

breathe_projects = {"sluice": os.environ["SITE_DOXYGEN"]}
breathe_default_project = "sluice"
cpp_id_attributes = ["SLUICE_API"]

pygments_style = "tango"
html_search_scorer = os.path.join(os.path.dirname(__file__), "scorer.js")
html_theme = "furo"
html_title = f"sluice {version}"
html_static_path = ["_static"]
html_css_files = ["sluice.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#00608f", "color-brand-content": "#00608f"},
    "dark_css_variables": {"color-brand-primary": "#6cc0f0", "color-brand-content": "#6cc0f0"},
}
linkcheck_timeout = 20
linkcheck_ignore = [r"http://127\.0\.0\.1.*", r"http://localhost.*"]


def _as_rst(app, what, name, obj, options, lines):
    """Turns the package's plain docstrings into reStructuredText: `name: text` of an argument into
    a field, an indented example into code."""
    out, in_field = [], False
    for number, line in enumerate(lines):
        line = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)
        line = re.sub(r"(?<![\w*])\*(?=\w)", r"\\*", line)
        before = lines[number - 1] if number else ""
        if what in ("function", "method", "class") and (
            field := re.match(r"(\w+(?:, \w+)*): (.*)", line)
        ):
            if not in_field:
                out.append("")
            in_field = True
            out.append(f":param {field[1]}: {field[2]}")
        elif line.startswith("    ") and not before.strip() and not in_field:
            out += ["::", "", line]
        else:
            in_field = in_field and bool(line.strip())
            out.append(line)
    lines[:] = out


def setup(app):
    app.connect("autodoc-process-docstring", _as_rst)
