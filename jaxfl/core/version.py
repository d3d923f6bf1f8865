"""The version of the installed package, which pyproject.toml states."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("jaxfl")
except PackageNotFoundError:  # a copy of the source that is on the path without being installed
    VERSION = "unknown"
