"""What a reader asks of tables and pictures: the columns, and what runs and scores are called."""

import re
from collections.abc import Mapping, Sequence

from jaxfl.core.errors import check, check_name
from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.tables.grouping import comparable_groups
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.scores import TITLES
from jaxfl.experiment.tables.tables import POOLED, REFERENCES, Cells, metrics_of, table_cells
from jaxfl.simulation.metrics import metric_of

# Columns of a table for LaTeX behind the name, which fit the column of a page.
LATEX_COLUMNS = 5
# Names of columns in the records of `tidy`, and the shortest ones, with their titles in a table.
ALIASES = {
    "worst": "worst clients",
    "deployed_worst10": "worst clients",
    "deployed_weighted": "weighted",
    "trained_mean": TITLES["trained"],
    "fine_tuned_mean": TITLES["fine_tuned"],
    "up": "sent",
    "down": "received",
    "batches": "gradients",
}
# What may follow the name of a run or a metric where more is said of it.
BEHIND = (":", ",", " ")


def titles_by_key(runs: Runs, titles: Sequence[str]) -> dict[str, str]:
    """The titles of columns by all words that a reader may type for them.

    Args:
      runs: of the table, for the names of their metrics.
      titles: of its columns.
    """
    keys = {alias: title for alias, title in ALIASES.items() if title in titles}
    for place, name in enumerate(metrics_of(runs)):
        title = metric_of(name).title
        if title not in titles:
            continue
        keys |= {name: title, f"{name}_mean": title}
        keys |= {} if place else {"deployed_mean": title}
        if f"{title}{POOLED}" in titles:
            keys |= {f"{name}_pooled": f"{title}{POOLED}"}
            keys |= {} if place else {"deployed_pooled": f"{title}{POOLED}"}
    return keys | {key_of(title): title for title in titles}


def key_of(title: str) -> str:
    """A title as one types it: one word of small letters.

    Example:
      >>> key_of("over local"), key_of("AUC, pooled"), key_of("fine-tuned")
      ('over_local', 'auc_pooled', 'fine_tuned')
    """
    return re.sub(r"\W+", "_", title.casefold()).strip("_")


def selection(cells: Cells, titles: Sequence[str]) -> Cells:
    """The columns of a table with these titles, in this order, as far as it has them."""
    places = [cells.titles.index(title) for title in titles if title in cells.titles]
    return Cells(
        [cells.titles[place] for place in places],
        [(name, [row[place] for place in places]) for name, row in cells.rows],
        frozenset(
            (row, column)
            for column, place in enumerate(places)
            for row in range(len(cells.rows))
            if (row, place) in cells.best
        ),
        sum(place < cells.options for place in places),
    )


def titles_of(columns: Sequence[str], runs: Runs, tables: Sequence[Cells]) -> list[str]:
    """The titles of the columns that `--columns` names.

    Raises:
      InputError: no table has such a column, or it is named twice.
    """
    keys = titles_by_key(runs, list(dict.fromkeys(one for table in tables for one in table.titles)))
    titles = []
    for column in columns:
        choices = dict.fromkeys(key_of(title) for title in keys.values())
        # The name of a metric may have signs that no title keeps.
        key = column if column in keys else key_of(column)
        if key not in keys:
            check_name("column", column, choices)
        titles.append(keys[key])
        check(titles.count(titles[-1]) == 1, f"--columns names {column!r} twice: name it once")
    return titles


def parse_names(words: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """`["fedavg=FedAvg"]` -> `{"fedavg": "FedAvg"}`.

    Args:
      words: KEY=TEXT each. A key may hold "=" itself, as the name of a run may.
      keys: that there are.

    Raises:
      InputError: an unknown key, one that occurs twice, or a text that is none.

    Example:
      >>> parse_names(["ditto:lam=1=Ditto, strong"], ["ditto", "ditto:lam=1"])
      {'ditto:lam=1': 'Ditto, strong'}
    """
    names: dict[str, str] = {}
    for word in words:
        matches = [key for key in keys if word.startswith(f"{key}=")]
        if not matches:
            key, equals, _ = word.partition("=")
            check(bool(equals), f"--names {word!r:.80}: expected KEY=TEXT, as fedavg=FedAvg")
            check_name("run, algorithm or column", key, keys)
        key = max(matches, key=len)
        text = word.removeprefix(f"{key}=")
        check(
            text.isprintable() and 0 < len(text) <= 100 and bool(text.strip()),
            f"--names {key} is {text!r:.80}: expected 1 to 100 letters that can be printed",
        )
        check(key not in names, f"--names names {key!r} twice: name it once")
        names[key] = text
    return names


def keys_of_names(runs: Runs) -> list[str]:
    """What `--names` may name: runs, their algorithms, and columns of their tables."""
    groups = comparable_groups(pool_seeds(runs))
    labels = [label for group in groups for label in group.runs]
    algorithms = [run.summary["algorithm"] for run in runs.values()]
    titles = [title for group in groups for title in table_cells(group.runs).titles]
    return list(dict.fromkeys([*labels, *algorithms, *titles_by_key(runs, titles)]))


def titles_called(names: Mapping[str, str], runs: Runs) -> dict[str, str]:
    """What columns are called, by their titles.

    Args:
      names: of `parse_names`.
      runs: of the tables.
    """
    if not names:
        return {}
    groups = comparable_groups(pool_seeds(runs))
    titles = [title for group in groups for title in table_cells(group.runs).titles]
    keys = titles_by_key(runs, titles)
    references = {f"over {one}": f"over {called(one, names)}" for one in REFERENCES if one in names}
    return references | {keys[key]: text for key, text in names.items() if key in keys}


def called(name: str, names: Mapping[str, str]) -> str:
    """What a run, or another thing, is called.

    Args:
      name: of the run; behind it may stand what tells it apart from others.
      names: what is called otherwise, by its name.

    Example:
      >>> [called(name, {"ditto": "Ditto"}) for name in ("ditto", "ditto:lam=1", "dittoo")]
      ['Ditto', 'Ditto:lam=1', 'dittoo']
    """
    if name in names:
        return names[name]
    keys = [key for key in names if name.startswith(tuple(f"{key}{end}" for end in BEHIND))]
    if not keys:
        return name
    key = max(keys, key=len)
    return names[key] + name.removeprefix(key)


def called_runs(runs: Runs, names: Mapping[str, str]) -> Runs:
    """The runs by what they are called.

    Raises:
      InputError: two of them are called the same.
    """
    labels = {label: called(label, names) for label in runs}
    for label, text in labels.items():
        others = [other for other, same in labels.items() if same == text and other != label]
        check(not others, f"--names calls two runs {text!r}: tell them apart")
    return {labels[label]: run for label, run in runs.items()}
