"""Sphinx settings. scripts/docs runs Sphinx and sets the folders of generated files."""
import os
import re

DOCS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(DOCS)
BUILT = os.path.join(ROOT, "build", "docs")


def read_version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(tandem VERSION ([0-9.]+)", file.read())[1]


project = "tandem"
author = "the authors of tandem"
copyright = author
release = version = read_version()

extensions = ["myst_parser", "breathe"]
exclude_patterns = ["benchmarks", "**/*.in.md", "*.in.md"]
root_doc = "index"
# Dashes of flags stay dashes.
smartquotes = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

breathe_projects = {"tandem": os.path.join(BUILT, "xml")}
breathe_default_project = "tandem"
breathe_show_include = False
primary_domain = "cpp"
highlight_language = "cpp"

html_theme = "furo"
html_title = f"tandem {release}"
html_static_path = ["_static"]
html_css_files = ["tandem.css"]
html_copy_source = False
html_show_sphinx = False
