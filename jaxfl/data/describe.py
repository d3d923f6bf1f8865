"""Statistics of a partition, and of the tables of sites before they are a data set, in words."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.options import checked
from jaxfl.data.federate import label_counts
from jaxfl.data.skews import Parts
from jaxfl.data.source import Source, Split, client_names
from jaxfl.data.split import split_rows
from jaxfl.data.table.fit import in_order
from jaxfl.data.table.prepare import read_sheets, sites_of_rows
from jaxfl.data.table.read import NUMBER, Cell, without, word_of
from jaxfl.data.table.summary import absent_words

PARTS = ("train", "validation", "test")
FEW = 5  # values of a column of which each is told


def describe_partition(source: Source, parts: Parts) -> dict[str, str]:
    """Clients, examples, labels and imbalance of a partition, by name.

    "size imbalance" is the Gini coefficient of the clients' numbers of examples: 0 if all hold
    equally many, near 1 if one holds all. "label skew" is the total variation distance between a
    client's label frequencies and those of all clients together, averaged over clients that have
    examples: 0 for identical clients. Where an example has a label for each position, frequencies
    are those of positions.

    Args:
      source: the data set.
      parts: rows of its training set for each client.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> parts = jaxfl.data.pathological(source.y_train, clients=10, seed=0)
      >>> description = describe_partition(source, parts)
      >>> description["labels a client"], description["size imbalance"], description["label skew"]
      ('2', '0.00', '0.80')
    """
    counts = label_counts(source, parts)  # [C, classes]
    sizes = np.array([len(rows) for rows in parts])
    labels = (counts > 0).sum(axis=1)
    totals = counts.sum(axis=1)
    frequencies = counts[totals > 0] / totals[totals > 0, None]
    skew = np.abs(frequencies - counts.sum(axis=0) / counts.sum()).sum(axis=1) / 2
    gini = np.abs(sizes[:, None] - sizes[None]).mean() / (2 * sizes.mean())
    if source.survival:
        events = int(source.strata.sum())
        targets = f"times to {source.y_train[:, 0].max():g}, {events:,} events"
    elif source.classes:
        targets = f"{source.classes} labels"
    elif source.targets:
        targets = f"numbers, {source.y_train.min():g} to {source.y_train.max():g}"
    else:
        targets = "none"
    if source.each_position:
        form = "x".join(map(str, source.y_train.shape[1:]))
        missing = np.count_nonzero(source.y_train < 0) / source.y_train.size
        without = f", {100 * missing:.3g} % without" if missing else ""
        targets = f"{targets}, one for each of {form} positions{without}"
    elif source.several_labels:
        targets = f"{targets}, {source.y_train.sum(axis=1).mean():.3g} an example in the mean"
    elif source.y_train.ndim > 1 and source.targets and not source.survival:
        targets = f"{source.outputs} {targets}"
    count = f"{len(source.y_train):,} to train"
    if len(source.y_test):
        examples = f"{count} and validate, {len(source.y_test):,} to test"
    else:
        examples = f"{count}, validate and test"
    kinds = "labels a client" if source.classes else "tenths a client"
    own = source.weights
    weights = {} if own is None else {"weights of examples": f"{own.min():g} to {own.max():g}"}
    groups = {} if source.groups is None else {"groups": f"{len(np.unique(source.groups)):,}"}
    return {
        "examples": examples,
        **groups,
        **weights,
        "each": _form(source.x_train),
        "targets": targets,
        "clients": f"{len(parts)}",
        "examples a client": _spread(sizes),
        **({} if source.survival else {kinds: _spread(labels)}),
        "size imbalance": f"{gini:.2f}",
        "label skew": f"{skew.mean():.2f}",
    }


@checked
def describe_each_client(
    source: Source,
    parts: Parts,
    *,
    val: float = 0.2,
    test_fraction: float = 0.2,
    split: Split | None = None,
    fold: tuple[int, int] | None = None,
) -> dict[str, list]:
    """What each client holds, by the name of the column, with an entry for each client.

    "client" is its name or its id; "train", "validation" and "test" are numbers of examples, and
    "LABEL train" and so on those of a label, or of its positions. Of numbers as targets, "mean
    train" is their mean; of times to an event "events train" are the events.

    Args:
      source: the data set.
      parts: rows of its training set for each client.
      val: as in `federate`.
      test_fraction: as in `federate`; 0 where clients are not tested on their own examples, so that
        there are no columns of the test.
      split: as in `federate`.
      fold: as in `federate`.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> parts = jaxfl.data.pathological(source.y_train, clients=10, seed=0)
      >>> rows = describe_each_client(source, parts)
      >>> rows["client"][:2], rows["train"][:2], rows["0 train"][:2]
      (['0', '1'], [87, 87], [44, 0])
    """
    names = client_names(source, parts) or tuple(map(str, range(len(parts))))
    splits = split_rows(source, parts, val=val, test_fraction=test_fraction, split=split, fold=fold)
    thirds = {part: list(rows) for part, rows in zip(PARTS, splits, strict=True)}
    if not test_fraction and fold is None:
        del thirds["test"]
    columns: dict[str, list] = {"client": list(names)}
    columns |= {part: [len(rows) for rows in third] for part, third in thirds.items()}
    if not source.targets:
        return columns
    if source.survival:
        for part, third in thirds.items():
            columns[f"events {part}"] = [int(source.strata[rows].sum()) for rows in third]
        return columns
    if not source.classes:
        for part, third in thirds.items():
            columns[f"mean {part}"] = [
                f"{source.y_train[rows].mean():.4g}" if len(rows) else "" for rows in third
            ]
        return columns
    counts = {part: label_counts(source, third) for part, third in thirds.items()}
    for label in range(source.classes):
        name = source.class_names[label] if source.class_names else label
        for part in thirds:
            columns[f"{name} {part}"] = counts[part][:, label].tolist()
    return columns


def describe_csv(
    files: Sequence[Path], *, owner: str | None = None, missing: Sequence[str] = (), **how: Any
) -> dict[str, list]:
    r"""What each site has in each column of its CSV file, by the name of what is told.

    There is an entry for each column and site: "values" are cells that are not missing, "missing"
    the share of the others, "median" that of numbers, and "range or values" the least and the
    largest number, or how often each value is there where there are few or they are words. Files
    may differ in their columns.

    Args:
      files: a CSV file for each site, or with `owner` any CSV files.
      owner: the column that names the site of each row.
      missing: further cells that hold no value.
      **how: the files are written, as in `prepare_csv`: `columns`, `encoding`, `decimal` and
        `thousands`.

    Raises:
      InputError: a file is no CSV file, or a row names no site.

    Example:
      >>> import tempfile
      >>> file = Path(tempfile.mkdtemp(), "north.csv")
      >>> _ = file.write_text("age,ward\n61,ICU\n75,\n43,ICU\n")
      >>> found = describe_csv([file])
      >>> found["column"], found["site"], found["values"], found["missing"]
      (['age', 'ward'], ['north', 'north'], [3, 2], ['0%', '33%'])
      >>> found["median"], found["range or values"]
      (['61', ''], ['43 to 75', 'ICU (2)'])
    """
    sheets = [without(sheet, absent_words(missing)) for sheet in read_sheets(files, **how)]
    sites = sites_of_rows(sheets, owner)
    cells: dict[str, dict[str, list[Cell]]] = {}
    start = 0
    for sheet in sheets:
        own = sites[start : start + len(sheet.lines)]
        start += len(own)
        for name, column in sheet.columns.items():
            for site, cell in zip(own, column, strict=True):
                cells.setdefault(name, {}).setdefault(site, []).append(cell)
    rows = [
        (name, site, *_cells_in_words(of_sites.get(site, [])))
        for name, of_sites in cells.items()
        if name != owner
        for site in in_order(set(sites))
    ]
    titles = ("column", "site", "values", "missing", "median", "range or values")
    return {title: list(each) for title, each in zip(titles, zip(*rows, strict=True), strict=True)}


def _cells_in_words(cells: Sequence[Cell]) -> tuple[int, str, str, str]:
    """How many values there are, the share that is missing, the median, and range or values."""
    if not cells:
        return 0, "", "", "no such column"
    counts = Counter(word_of(cell) for cell in cells if cell is not None)
    numbers = {word: count for word, count in counts.items() if NUMBER.fullmatch(word)}
    values = counts.total()
    absent = 1 - values / len(cells)
    share = "<1%" if 0 < absent < 0.005 else f"{absent:.0%}"
    # Few words among numbers may stand for a missing value, and are told too.
    others = Counter({word: count for word, count in counts.items() if word not in numbers})
    if 2 * others.total() >= values:
        numbers, others = {}, counts
    each = np.repeat([float(word) for word in numbers], list(numbers.values()))
    if len(counts) <= FEW and 2 * len(counts) <= values:
        shown = [f"{word} ({counts[word]:,})" for word in in_order(counts)]
    else:
        shown = [f"{each.min():g} to {each.max():g}"] if each.size else []
        shown += [f"{word:.40} ({count:,})" for word, count in others.most_common(FEW)]
        if len(others) > FEW:
            shown.append(f"and {len(others) - FEW:,} others")
    return values, share, f"{np.median(each):g}" if each.size else "", ", ".join(shown)


def describe_groups(groups: np.ndarray) -> str:
    """The number of groups and the clients in a group, in words.

    Args:
      groups: the group of each client [C], from 0.

    Example:
      >>> describe_groups(np.array([0, 0, 1]))
      '2, clients in a group: 1 to 2, median 1.5'
    """
    sizes = np.bincount(groups)
    return f"{len(sizes)}, clients in a group: {_spread(sizes)}"


def _form(x: PyTree) -> str:
    """The shape and type of an example, in words."""
    each = [
        (tree.path(keys), "x".join(map(str, leaf.shape[1:])), str(leaf.dtype))
        for keys, leaf in jax.tree_util.tree_leaves_with_path(x)
    ]
    return ", ".join(" ".join(word for word in words if word) for words in each)


def _spread(values: np.ndarray) -> str:
    low = values.min()
    high = values.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,}, median {np.median(values):g}"
