"""The examples in the docstrings of the public names: every name has one, and all hold."""

import dataclasses
import importlib
import inspect
import shutil
import types
from pathlib import Path

import pytest
from examples import check_example
from test_docs import reference

from jaxfl.experiment import Config, execute

# Public modules that are reached by a name in a table, or by few users, and have no page.
FURTHER = (
    "jaxfl.data.concept",
    "jaxfl.data.augment",
    "jaxfl.uplink.alone",
    "jaxfl.uplink.together",
    "jaxfl.evaluate",
    "jaxfl.protocols",
    "jaxfl.papers",
    "jaxfl.displacement",
)
