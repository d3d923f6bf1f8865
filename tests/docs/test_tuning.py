"""docs/tuning.md holds the table that docs/tuning.py writes, but for methods that are newer."""

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_is_that_of_the_facts():
    spec = importlib.util.spec_from_file_location("tuning", DOCS / "tuning.py")
    tuning = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tuning)
    text = (DOCS / "tuning.md").read_text()
    names = re.findall(r"^\| \[`(\w+)`\]", text, re.MULTILINE)
    assert text == tuning.page(text, names), "run `make -C docs pages`"
    assert len(names) > 60
