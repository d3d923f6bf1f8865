"""The settings of Sphinx: `make -C docs html` builds the pages into docs/_build/html.

The pages in docs/methods/ and docs/api/ are written at the start of each build, from the facts and
the docstrings of the package, and are not committed.
"""

import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
sys.path.insert(0, str(DOCS.parent))
# The programs of the pages run in processes of their own.
os.environ["PYTHONPATH"] = os.pathsep.join([str(DOCS.parent), os.environ.get("PYTHONPATH", "")])
# They compile for a moment's use, and a second build finds what the first has compiled.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(DOCS / "_build" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

import methods  # noqa: E402 - found on the path that is set above
import reference  # noqa: E402
import tuning  # noqa: E402

import jaxfl  # noqa: E402

project = "jaxfl"
author = "The jaxfl authors"
copyright = author
version = release = jaxfl.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}
html_theme = "furo"
html_title = "jaxfl"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # `page.md#a-heading`, as on the hosts that show Markdown
nb_execution_mode = "force"  # the Makefile has EXECUTE=off
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "code"  # `name` in a docstring
napoleon_google_docstring = True
napoleon_numpy_docstring = False
autodoc_typehints = "none"  # shapes and units stand in the docstrings
autodoc_member_order = "bysource"
toc_object_entries = False

SPECIAL = re.compile(r"(`[^`]*`)|([*|\\])|(\w_)(?=[^\w`]|$)")


def escape(line: str) -> str:
    """A line of a docstring in which `*`, `|` and a last underscore are plain characters."""
    return SPECIAL.sub(
        lambda found: found[1] or (f"\\{found[2]}" if found[2] else f"{found[3][:-1]}\\_"), line
    )


def plain_characters(app, what, name, thing, options, lines: list[str]) -> None:
    """Escapes what reStructuredText would read as markup, except in examples and their results."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            lines[number] = escape(line)


def write_pages(app) -> None:
    """Writes the pages that are made of the package."""
    methods.write_pages(DOCS / "methods")
    reference.write_pages(DOCS / "api")


def replace_source(app, name: str, source: list[str]) -> None:
    """In the built pages each method has its own page, and methods.md is the table of them.

    This table and that of tuning.md have the methods as they are, not as the committed pages do.
    """
    if name == "methods":
        source[0] = methods.index()
    if name == "tuning":
        source[0] = tuning.page(source[0])
    source[0] = re.sub(r"\(((?:\.\./)*)methods\.md#(\w+)\)", r"(\1methods/\2.md)", source[0])


def setup(app) -> None:
    """Connects the functions above to the steps of a build."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", replace_source)
    app.connect("autodoc-process-docstring", plain_characters, priority=100)
