"""Python files of the user's own, which add methods, models, partitions, attacks or metrics.

They are run only where the command line names them: no config, checkpoint or file of data does.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxfl.core.errors import InputError, check


def run_plugins(files: Sequence[str]) -> None:
    """Runs Python files, which add to the dictionaries of names.

    `jaxfl.models.MODELS["net"] = Net` in such a file makes `--model net` known.

    Raises:
      InputError: there is no such file, or it raises an error.
    """
    for name in files:
        file = Path(name)
        check(os.path.isfile(file), f"--plugin {name}: there is no such file, give a Python file")
        module_name = f"jaxfl_plugin_{file.stem}"
        spec = importlib.util.spec_from_file_location(module_name, file)
        if spec is None or spec.loader is None:
            raise InputError(f"--plugin {name}: expected a Python file, NAME.py")
        module = importlib.util.module_from_spec(spec)
        # Python needs it there for dataclasses of the file.
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # whatever the file raises
            raise InputError(f"--plugin {name} cannot be run: {error!r:.300}") from error
