"""The command line without an installed `jaxfl`: `python -m jaxfl.cli`."""

import sys

from jaxfl.cli import main

sys.exit(main())
