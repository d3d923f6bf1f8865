"""The page of the board, from its rows."""

from textwrap import fill
from typing import Any

import numpy as np

from experiments.board.rows import Row
from experiments.board.settings import SETTINGS, clients_of, command_of
from experiments.seeds import mean_text
from jaxfl.core.errors import check

Entry = dict[str, Any]
# So many rows are named at the top of the page, and these methods wherever they are.
BEST = 3
KNOWN = ("local", "fedavg", "fedavg_ft", "fedcedar", "gfedmtl", "pfedgat", "pfedgraph")


def page(rows: list[Row]) -> str:
    """All tables: one of all settings, then one for each of them.

    Raises:
      InputError: two rows have one name, or there is none.
    """
    names = [title(row) for row in rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    check(bool(rows), "there is no row: make one with `python -m experiments.board run METHOD`")
    check(not twice, f"two rows are named {', '.join(twice)}: name them apart")
    sections = [overview(rows), *(section(rows, setting) for setting in SETTINGS)]
    return TEXT.format(
        answer=answer(rows),
        count=len(rows),
        command=command_of("labels", "METHOD"),
        tables="\n".join(sections),
    )


def answer(rows: list[Row]) -> str:
    """The best methods by the mean over all settings, and those that everybody knows."""
    whole = [row for row in ordered(rows) if len(row["settings"]) == len(SETTINGS)]
    known = [row for row in whole[BEST:] if row["method"] in KNOWN]
    if not whole:
        return "No row has all settings."

    def said(some: list[Row]) -> str:
        return ", ".join(f"{title(row)} {np.mean(deployed(row)):.1f}" for row in some)

    also = f" Further down are {said(known)}." if known else ""
    best = said(whole[:BEST])
    text = f"Mean accuracy in % over {len(SETTINGS)} settings, the best first: {best}.{also}"
    return fill(text, 100, break_on_hyphens=False, break_long_words=False)


def deployed(row: Row) -> list[float]:
    """The mean scores of the deployed models, by setting."""
    return [
        float(means(row["settings"][name], name, "deployed").mean())
        for name in SETTINGS
        if name in row["settings"]
    ]


def ordered(rows: list[Row]) -> list[Row]:
    """Rows that have all settings come first, then the best."""
    return sorted(rows, key=lambda row: (-len(row["settings"]), -np.mean(deployed(row))))


def title(row: Row) -> str:
    """The name of a row, with its tool if it is not jaxfl."""
    name = f"`{row['method']}`"
    return f"[{name}]({row['link']}), {row['by']}" if "link" in row else name


def means(entry: Entry, setting: str, stage: str, *, unseen: bool = False) -> np.ndarray:
    """Mean scores in % over the clients that take part, or over the unseen ones [S]."""
    chosen = clients_of(setting).unseen == unseen
    return 100 * np.asarray(entry[stage])[:, chosen].mean(axis=1)


def worst(entry: Entry, setting: str) -> float:
    """The score of the worst client that takes part in %, mean over seeds."""
    taking = ~clients_of(setting).unseen
    return float(100 * np.asarray(entry["deployed"])[:, taking].min(axis=1).mean())


def overview(rows: list[Row]) -> str:
    """The deployed models in all settings."""

    def cells(row: Row) -> list[str]:
        return [
            mean_text(means(row["settings"][name], name, "deployed"))
            if name in row["settings"]
            else ""
            for name in SETTINGS
        ]

    return table(["method", *SETTINGS], [[title(row), *cells(row)] for row in ordered(rows)])


def section(rows: list[Row], setting: str) -> str:
    """The table of one setting, the best deployed models first."""
    having = [(row, row["settings"][setting]) for row in rows if setting in row["settings"]]
    having.sort(key=lambda one: -means(one[1], setting, "deployed").mean())
    lines = []
    for row, entry in having:
        agreement = entry.get("group_agreement")
        lines.append(
            [
                title(row),
                mean_text(means(entry, setting, "deployed")),
                f"{worst(entry, setting):.1f}",
                f"{means(entry, setting, 'fine_tuned').mean():.1f}",
                f"{means(entry, setting, 'fine_tuned', unseen=True).mean():.1f}",
                f"{entry['floats']:,}",
                f"{entry['gradients']:,}",
                "" if agreement is None else f"{agreement:.2f}",
            ]
        )
    return f"\n## {setting[0].upper() + setting[1:]}\n\n{table(COLUMNS, lines)}"


def table(header: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *lines))


COLUMNS = [
    "method",
    "deployed",
    "worst",
    "fine-tuned",
    "unseen",
    "floats",
    "gradients",
    "agreement",
]
TEXT = """<!-- python -m experiments.board page writes this page -->

# A board that you can add to

{answer}

The {count} rows below are methods with default options, which nobody tuned; some compute several
times the gradients of others, see the tables of the settings. The data are digits, which come with
scikit-learn, so any tool can have a row: take the arrays of a setting, train, write a JSON file,
and let a command check it.

```bash
python -m experiments.board run pfedgraph --again  # a method of jaxfl, though it has a row
python -m experiments.board data labels --out DIR  # arrays, for other tools
python -m experiments.board example DIR            # a row by scikit-learn: DIR/row.json
python -m experiments.board check DIR/row.json
python -m experiments.board page                   # this page, of all rows
```

A row is a file in `experiments/results/board`; `experiments/board/rows.py` describes it. The
command checks that all numbers are there, and that each score is a number of right answers to the
client's test examples. It does not repeat a run.

{tables}
## What the columns are

*Deployed* are the models that the clients have after the last round, accuracy in %, mean over
clients and ± the deviation over three seeds; *worst* the worst client, *fine-tuned* after further
local training. *Unseen* are two of the ten clients that take part in no round, after they have
fine-tuned what a newcomer receives. *Floats* are those that a client sends and receives in all
rounds, *gradients* the batches that it computes. *Agreement* is the adjusted Rand index of the
groups in the last graph and the true ones, mean over seeds: 1 if they are the same, 0 by chance.
Rows with all settings stand first in the first table.

Two of ten clients are unseen, so under *labels* two of the eight others have no partner with the
same labels. `pfedgraph` mixes these with others at its defaults ([tuning](../tuning.md)), which is
why it is far below [five partitions](partitions.md) there, where each client has its partner.

A run of jaxfl is that of `{command}`.
"""
