"""The command line as a module: `python -m jaxfl`."""

import sys

from jaxfl.cli import main

sys.exit(main())
