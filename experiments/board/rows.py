"""A row of the board: a JSON file with what a method reaches in each setting.

    {"format": 1, "method": "pFedGraph", "by": "a tool 1.0", "link": "https://...",
     "settings": {"labels": {"deployed": [[...], ...], "fine_tuned": [[...], ...],
                             "floats": 542640, "gradients": 1000,
                             "group_agreement": 0.97}, ...}}

`deployed` and `fine_tuned` are the shares of a client's test examples that are predicted, by seed
and client [S, C]. Clients who take part in no round, those of `unseen`, are among them, in their
places. `floats` are those that a client sends and receives in all rounds, `gradients` the batches
that it computes, both a mean over the other clients. `group_agreement` is the adjusted Rand index
of the last graph's groups and the true ones, mean over seeds; a method without a graph leaves it
out, and so does a setting without groups. A setting may be left out, and the link of a row that
jaxfl made.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.board.settings import (
    CLIENTS,
    SEEDS,
    SETTINGS,
    Clients,
    clients_of,
    config_of,
    groups_of,
)
from experiments.partitions import side_by_side
from jaxfl.core.errors import InputError, check, check_name
from jaxfl.core.types import Federation, Params
from jaxfl.experiment import build, gather, resolve
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.graph_numbers import graph_measures, weights_by_name
from jaxfl.experiment.session.history import versions
from jaxfl.experiment.session.run_program import one_seed

FORMAT = 1
# Of a share, in test examples: others may write four digits.
ROUNDING = 0.05

Row = dict[str, Any]


def run_row(method: str) -> Row:
    """Runs a method in all settings and seeds, in one program, and makes its row."""
    configs = {name: config_of(name, algorithm=method) for name in SETTINGS}
    data = {name: gather(resolve(config)) for name, config in configs.items()}
    federation = side_by_side([one.federation for one in data.values()])
    first = next(iter(configs))
    found = run_all(build(resolve(configs[first]), data[first]), federation)
    settings = {}
    for place, name in enumerate(SETTINGS):
        rows = slice(place * SEEDS, (place + 1) * SEEDS)
        settings[name] = entry(jax.tree.map(lambda x, rows=rows: x[rows], found), name)
    by = f"jaxfl {versions()['jaxfl']}"
    return {"format": FORMAT, "method": method, "by": by, "settings": settings}


class Results(NamedTuple):
    """Of runs side by side [R]."""

    deployed: np.ndarray  # [R, C] test scores
    fine_tuned: np.ndarray  # [R, C]
    floats: np.ndarray  # [R] that all clients send and receive
    batches: np.ndarray  # [R] that all clients compute
    weights: Any  # [R, 1, M, M] of the last round, by part of the model, or None
    ids: np.ndarray  # [R, 1, M] the clients of the last round


def run_all(built: Built, federation: Federation) -> Results:
    """The runs of a method, as `jaxfl run` does them, on federations of one shape [R, C, ...]."""
    rounds = built.options.run.rounds
    one = one_seed(built, built.algorithm, built.options.scores.score_after)
    everyone = jnp.arange(CLIENTS)

    def train(seed: Array, federation: Federation) -> tuple[Params, tuple]:
        start = one.init(seed, federation)
        state, (info, ids) = one.advance(rounds, seed, federation, start, 0)
        sums = (info.up + info.down).sum(), info.batches.sum()
        last = jax.tree.map(lambda x: x[-1:], (info.weights, ids))
        return one.deploy(federation, state, everyone), (*sums, *last)

    def score(seed: Array, federation: Federation, models: Params) -> tuple[Array, ...]:
        found = one.assess(seed, federation, models, rounds, everyone)
        stages = (found.deployed, found.fine_tuned)
        return tuple(stage.test for stage in stages if stage is not None)

    seeds = jnp.tile(jnp.arange(SEEDS, dtype=jnp.uint32), len(SETTINGS))
    models, (floats, batches, weights, ids) = jax.jit(jax.vmap(train))(seeds, federation)
    # Apart, because it is the same program for all methods, which a cache of compilations keeps.
    deployed, fine_tuned = jax.jit(jax.vmap(score))(seeds, federation, models)
    return jax.tree.map(np.asarray, Results(deployed, fine_tuned, floats, batches, weights, ids))


def entry(found: Results, setting: str) -> Row:
    """What a row says of one setting, from its runs."""
    clients = clients_of(setting)
    taking = int((~clients.unseen).sum())
    row: Row = {
        "deployed": np.round(found.deployed.astype(float), 5).tolist(),
        "fine_tuned": np.round(found.fine_tuned.astype(float), 5).tolist(),
        "floats": round(float(found.floats.mean()) / taking),
        "gradients": round(float(found.batches.mean()) / taking),
    }
    graph = graph_measures(
        weights_by_name(found.weights, ()), found.ids, groups_of(setting), np.zeros(CLIENTS, bool)
    )
    agreement = graph.get("group_agreement")
    if isinstance(agreement, float):
        row["group_agreement"] = round(agreement, 4)
    return row


def read_row(file: Path) -> Row:
    """The row of a file, checked.

    Raises:
      InputError: the file is not a row of the board, and why.
    """
    try:
        row = json.loads(file.read_text())
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    check(isinstance(row, dict), f"{file} is {type(row).__name__}: expected a JSON object")
    check_row(row, str(file))
    return row


def check_row(row: Row, where: str) -> None:
    """Checks that a row has all that the page shows, and that its scores can be what they say.

    Raises:
      InputError: it has not, and which part is wrong.
    """
    check(
        row.get("format") == FORMAT,
        f"{where}: format is {row.get('format')!r}: this version reads {FORMAT}",
    )
    ours = str(row.get("by")).startswith("jaxfl ") and "link" not in row
    for name in ("method", "by") if ours else ("method", "by", "link"):
        check(
            isinstance(row.get(name), str) and bool(row[name].strip()),
            f"{where}: {name} is {row.get(name)!r}: expected a text",
        )
        check(
            not set(row[name]) & set("|`<>\n"),
            f"{where}: {name} has one of | ` < > or a new line, which a table cannot show",
        )
    if not ours:
        check(
            row["link"].startswith("https://"),
            f"{where}: link is {row['link']!r}: expected the address of the code, https://...",
        )
    settings = row.get("settings")
    check(
        isinstance(settings, dict) and bool(settings),
        f"{where}: settings is {type(settings).__name__}: expected an object of settings by name",
    )
    for name, found in row["settings"].items():
        check_name("setting", name, SETTINGS)
        check(isinstance(found, dict), f"{where}: {name} is no object")
        _check_entry(found, clients_of(name), f"{where}: {name}")


def _check_entry(found: Row, clients: Clients, where: str) -> None:
    for stage in ("deployed", "fine_tuned"):
        scores = _numbers(found.get(stage), clients.tests.shape, f"{where}: {stage}")
        right = scores * clients.tests
        wrong = np.argwhere(
            (scores < 0) | (scores > 1) | (np.abs(right - np.round(right)) > ROUNDING)
        )
        if len(wrong):
            seed, client = wrong[0]
            raise InputError(
                f"{where}: {stage} of seed {seed}, client {client} is {scores[seed, client]}: "
                f"expected a share of its {clients.tests[seed, client]} test examples, from 0 to 1"
            )
    for name in ("floats", "gradients"):
        number: Any = found.get(name)
        check(
            _is_number(number) and number >= 0,
            f"{where}: {name} is {number!r}: expected a number of at least 0",
        )
    if "group_agreement" in found:
        check(
            clients.groups,
            f"{where}: there are no groups here: leave group_agreement out",
        )
        index = found["group_agreement"]
        check(
            _is_number(index) and abs(index) <= 1,
            f"{where}: group_agreement is {index!r}: expected a number from -1 to 1",
        )


def _is_number(found: Any) -> bool:
    # Neither NaN nor infinite, nor a whole number that no float can hold.
    return isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 1e300


def _numbers(found: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """An array of finite numbers of a shape."""
    try:
        array = np.asarray(found, dtype=object)
    except ValueError:
        # Lists of unequal lengths.
        array = np.zeros(0, dtype=object)
    check(
        array.shape == shape and all(_is_number(one) for one in array.flat),
        f"{where}: expected finite numbers [{', '.join(map(str, shape))}]",
    )
    return array.astype(float)
