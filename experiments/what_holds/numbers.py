"""All numbers of the report, from stored results: claims of papers and rows of the board."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.board.page import means, worst
from experiments.board.rows import Row
from experiments.board.settings import COMMON, SEEDS, SETTINGS, clients_of
from experiments.seeds import mean_text
from experiments.tables.claims import Finding
from experiments.tables.claims_page import cells
from experiments.tables.claims_queue import cost, waiting

# Of which a claim to help has to be better.
PLAIN = ("local", "fedavg", "fedavg_ft")
SYSTEMS = ("pfedgraph", "pfedgat", "fedcedar", "gfedmtl")
PROMISE = "safe_graph"
BEST = 8  # methods of the table of all settings, beside those that are named

Scores = dict[str, dict[str, np.ndarray]]  # method -> setting -> of seeds and clients [S, C], in %


class Harm(NamedTuple):
    """How many clients a method leaves worse or better than training alone, in %."""

    method: str
    worse: float
    better: float


def numbers(findings: Sequence[Finding], rows: Sequence[Row]) -> dict[str, Any]:
    """What the text shows, by name.

    Args:
      findings: of all claims.
      rows: of the board, those that have all settings, the best first.
    """
    by_method = {row["method"]: row for row in rows}
    scores = client_scores(rows)
    return {
        "claims": claims(findings),
        "settings": list(SETTINGS),
        "seeds": SEEDS,
        "common": COMMON | {"taking": int((~clients_of(next(iter(SETTINGS))).unseen).sum())},
        "methods": len(rows),
        "board": [line(row) for row in chosen(rows)],
        "rank": {name: place + 1 for place, name in enumerate(by_method)},
        "best": {name: best_of(rows, name) for name in SETTINGS},
        "promise": promise(by_method),
        "harm": {one.method: one._asdict() for one in harms(scores)},
        "cost": {name: costs(by_method[name]) for name in (*PLAIN, *SYSTEMS, PROMISE)},
    }


def claims(findings: Sequence[Finding]) -> dict[str, Any]:
    """Counts, the lines of each paper, and what open claims wait for."""
    counts = Counter(finding.verdict for finding in findings)
    papers = dict.fromkeys(finding.table.paper for finding in findings)
    return {
        "count": len(findings),
        "decided": len(findings) - counts["open"],
        "agrees": counts["agrees"],
        "partly": counts["partly"],
        "not_seen": counts["not seen"],
        "open": counts["open"],
        "papers": [
            {
                "name": paper,
                "rows": [cells(one)._asdict() for one in findings if one.table.paper == paper],
            }
            for paper in papers
        ],
        "hours": round(sum(cost(finding) for finding in waiting(findings)) / 3600),
    }


def client_scores(rows: Sequence[Row]) -> Scores:
    """The scores of the deployed models of the clients that take part."""
    return {
        row["method"]: {
            name: 100 * np.asarray(row["settings"][name]["deployed"])[:, ~clients_of(name).unseen]
            for name in SETTINGS
        }
        for row in rows
    }


def chosen(rows: Sequence[Row]) -> list[Row]:
    """The best methods, and those that the text is about."""
    named = (*PLAIN, *SYSTEMS, PROMISE)
    return [row for place, row in enumerate(rows) if place < BEST or row["method"] in named]


def line(row: Row) -> dict[str, Any]:
    """A line of the table of all settings."""
    each = [means(row["settings"][name], name, "deployed") for name in SETTINGS]
    return {
        "method": row["method"],
        "scores": [mean_text(one) for one in each],
        "mean": f"{np.mean([one.mean() for one in each]):.1f}",
        **costs(row),
    }


def costs(row: Row) -> dict[str, Any]:
    """Of a client in all rounds, mean over the settings."""
    entries = [row["settings"][name] for name in SETTINGS]
    floats, gradients = (
        float(np.mean([entry[name] for entry in entries])) for name in ("floats", "gradients")
    )
    return {"floats": f"{floats:,.0f}", "gradients": f"{gradients:,.0f}"}


def best_of(rows: Sequence[Row], setting: str) -> dict[str, str]:
    """The best method of a setting, and its score."""

    def score(row: Row) -> float:
        return float(means(row["settings"][setting], setting, "deployed").mean())

    first = max(rows, key=score)
    return {"method": first["method"], "score": f"{score(first):.1f}"}


def promise(by_method: dict[str, Row]) -> list[dict[str, str]]:
    """How far `safe_graph` is from the best of the plain methods, by setting."""
    lines = []
    for name in SETTINGS:
        each = {
            method: means(by_method[method]["settings"][name], name, "deployed")
            for method in (*PLAIN, PROMISE)
        }
        rival = max(PLAIN, key=lambda method, each=each: each[method].mean())
        gap = each[PROMISE] - each[rival]
        lines.append(
            {
                "setting": name,
                "rival": rival,
                "gap": mean_text(gap, "+.1f"),
                "least": f"{gap.min():+.1f}",
                "worst": f"{worst(by_method[PROMISE]['settings'][name], name):.1f}",
                "rival_worst": f"{worst(by_method[rival]['settings'][name], name):.1f}",
            }
        )
    return lines


def harms(scores: Scores) -> list[Harm]:
    """Of each method, over all settings, seeds and clients; more than half a point counts."""
    found = []
    for method, by_setting in scores.items():
        gaps = np.concatenate(
            [(by_setting[name] - scores["local"][name]).ravel() for name in SETTINGS]
        )
        worse, better = (100 * float(np.mean(sign * gaps > 0.5)) for sign in (-1, 1))
        found.append(Harm(method, round(worse), round(better)))
    return found
