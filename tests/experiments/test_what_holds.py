"""The report as a PDF: its numbers are those of the rows, and its text finds them all."""

import numpy as np
import pytest

from experiments.board.settings import CLIENTS, SEEDS, SETTINGS, clients_of
from experiments.what_holds.__main__ import main
from experiments.what_holds.numbers import client_scores, harms, promise


def row(method, score):
    """All clients of all settings have one score, but the first of each seed, which has .5."""
    scores = np.full((SEEDS, CLIENTS), score)
    scores[:, np.argmin(next(iter(map(clients_of, SETTINGS))).unseen)] = 0.5
    entry = {"deployed": scores.tolist(), "floats": 10, "gradients": 20}
    return {"method": method, "settings": dict.fromkeys(SETTINGS, entry)}


@pytest.mark.slow
def test_clients_that_lose_and_what_the_promise_keeps():
    rows = [row("local", 0.8), row("fedavg", 0.7), row("fedavg_ft", 0.75), row("safe_graph", 0.9)]
    found = {one.method: one for one in harms(client_scores(rows))}
    taking = int((~clients_of("labels").unseen).sum())
    share = round(100 * (taking - 1) / taking)
    assert (found["fedavg"].worse, found["fedavg"].better) == (share, 0)
    assert (found["safe_graph"].worse, found["safe_graph"].better) == (0, share)
    for line in promise({one["method"]: one for one in rows}):
        assert line["rival"] == "local"
        assert line["gap"].startswith(f"+{10 * (taking - 1) / taking:.1f}")
        assert (line["worst"], line["rival_worst"]) == ("50.0", "50.0")


@pytest.mark.slow(seconds=20)
@pytest.mark.pictures
def test_the_report_is_made_from_what_is_stored(tmp_path):
    main(tmp_path)
    assert (tmp_path / "what_holds.pdf").read_bytes().startswith(b"%PDF")
