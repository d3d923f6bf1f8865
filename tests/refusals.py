"""What a refused file leaves behind: one line, and nothing that is half written."""

import os
import re

import pytest

from jaxfl.core.errors import InputError


def fails(read, message, folder):
    """`read` fails with the message, in one line, and leaves no data set in the folder."""
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert not [name for name in os.listdir(folder) if "npz" in name]
