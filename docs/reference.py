"""Writes a page of the API reference for each public module, at the start of a build."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

# The rooms of the house from below, of which modules are public; a package with `__all__` as one.
ROOMS = ("core", "graphs", "kernels", "models", "data", "training", "uplink")
ROOMS += ("algorithms.steps", "simulation", "experiment", "serve", "testing")
# The functions behind names in tables.
FURTHER = (
    "jaxfl.data.augment",
    "jaxfl.data.concept",
    "jaxfl.uplink.alone",
    "jaxfl.uplink.together",
)
FIELD = re.compile(r"^    (\w+)\s*:")


def modules_of(package: ModuleType) -> list[str]:
    """The modules of a package; one with `__all__` stands for the files in it, but for kernels."""
    flat = hasattr(package, "__all__") and package.__name__ != "jaxfl.kernels"
    if flat or not hasattr(package, "__path__"):
        return [package.__name__]
    parts = [f"{package.__name__}.{part.name}" for part in pkgutil.iter_modules(package.__path__)]
    return [name for part in parts for name in modules_of(importlib.import_module(part))]


def public_modules() -> list[str]:
    """The modules of the reference."""
    rooms = [importlib.import_module(f"jaxfl.{room}") for room in ROOMS]
    return ["jaxfl", *(name for room in rooms for name in modules_of(room)), *FURTHER]


def public_names(module: ModuleType) -> list[str]:
    """The names of `__all__`; without it those that the module defines, without underscore."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    text = inspect.getsource(module)
    defined = re.findall(r"^(?:def |class )?([A-Za-z]\w*)(?:\(|:| =|\[)", text, re.MULTILINE)
    return [name for name in dict.fromkeys(defined) if hasattr(module, name)]


def fields(cls: type) -> list[tuple[str, str]]:
    """The fields of a NamedTuple or a dataclass, each with the comment above or beside it."""
    known = getattr(cls, "_fields", ()) or [field.name for field in dataclasses.fields(cls)]
    found = []
    comment: list[str] = []
    for line in inspect.getsource(cls).splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip("# "))
        elif (match := FIELD.match(line)) and match[1] in known:
            beside = line.partition("  # ")[2]
            words = " ".join([*comment, *([beside] if beside else [])])
            found.append((match[1], words.partition("noqa")[0].rstrip("# ")))
            comment = []
        else:
            comment = []
    return found


def entry(module: str, name: str) -> str:
    """The reStructuredText of one public name."""
    thing = getattr(importlib.import_module(module), name)
    if inspect.isclass(thing):
        lines = [f".. autoclass:: {module}.{name}", ""]
        if dataclasses.is_dataclass(thing) or hasattr(thing, "_fields"):
            for field, words in fields(thing):
                lines += [f"   - ``{field}``{f': {escape(words)}' if words else ''}"]
            lines += [""]
        elif not issubclass(thing, Exception):
            lines[1:1] = ["   :members:"]
        return "\n".join(lines)
    if inspect.isfunction(thing):
        return f".. autofunction:: {module}.{name}\n"
    if isinstance(thing, dict):
        keys = ", ".join(f"``{key}``" for key in thing)
        return f".. py:data:: {module}.{name}\n\n   A dict with the keys {keys}.\n"
    if isinstance(thing, tuple) and all(inspect.isfunction(one) for one in thing):
        names = ", ".join(f"``{one.__name__}``" for one in thing)
        return f".. py:data:: {module}.{name}\n\n   The functions {names}.\n"
    value = " ".join(repr(thing).split())[:200].strip()
    return f".. py:data:: {module}.{name}\n\n   ``{value}``\n"


def escape(text: str) -> str:
    """Text in which no character is markup, except names between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        f"`{part}`" if part.startswith("`") else re.sub(r"([*|\\_])", r"\\\1", part)
        for part in parts
    )


def page(name: str) -> str:
    """The page of a module."""
    module = importlib.import_module(name)
    title = name
    lines = [title, "=" * len(title), "", f".. automodule:: {name}", "   :no-members:", ""]
    lines += [entry(name, public) for public in public_names(module)]
    return "\n".join(lines)


def index(modules: list[str]) -> str:
    """The page that lists the modules."""
    lines = [
        "API reference",
        "=============",
        "",
        "The public surface is ``jaxfl.__all__``, the public names of the modules in it, and",
        "``jaxfl.checkpoint``. The modules below stand in the order of the rooms of the house",
        "(:doc:`/design`). :doc:`/methods` has a page for each method.",
        "",
        "An example sees the names of its module, ``jax``, ``jnp``, ``np`` and ``jaxfl``. In those",
        "for authors of methods, ``task`` is a model with a body of eight features and a head for",
        "two classes, ``cohort`` is four clients with ten examples each, and",
        "``one_round(algorithm)`` gives the shapes of the state and the info after a round.",
        "``runs/digits`` is a finished run of one round. A test executes every example",
        "(``tests/docs/test_examples.py``).",
        "",
        ".. list-table::",
        "   :widths: 30 70",
        "",
    ]
    for name in modules:
        first = (importlib.import_module(name).__doc__ or "").splitlines()[0]
        lines += [f"   * - :doc:`{name}`", f"     - {escape(first)}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {name}" for name in modules), ""]
    return "\n".join(lines)


def write_pages(folder: Path) -> None:
    """Writes the page of each module, and the index; a page that is the same is left alone."""
    modules = public_modules()
    pages = {name: page(name) for name in modules} | {"index": index(modules)}
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        file = folder / f"{name}.rst"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
