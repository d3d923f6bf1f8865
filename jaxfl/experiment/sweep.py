"""Search over hyper-parameters: numbers side by side in one program, chosen by validation scores alone."""

import dataclasses
import itertools
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl import mesh
from jaxfl.algorithms import ALGORITHMS
from jaxfl.errors import check
from jaxfl.evaluate import make_evaluate
from jaxfl.experiment import files, plots
from jaxfl.experiment.build import Built, Data, build, gather
from jaxfl.experiment.config import Config, Setting, to_json
from jaxfl.experiment.hints import accepts, expected
from jaxfl.experiment.run import EVALUATE, INIT, ROUNDS
from jaxfl.experiment.validate import check_config, option
from jaxfl.rounds import make_rounds

Point = dict[str, Any]  # a value for each name that is searched
Trial = dict[
    str, Any
]  # {"point", "val", "test"}: mean scores of the deployed models, None if there are none
NAMES = {field.name for field in dataclasses.fields(Setting)}


def grid(space: dict[str, list]) -> list[Point]:
    """Every combination of the values."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def random(
    space: dict[str, list | tuple[float, float, str]], trials: int, seed: int
) -> list[Point]:
    """Combinations drawn at random: one of a list, or a number of (low, high, "linear" or "log")."""
    rng = np.random.default_rng(seed)

    def draw(choice: list | tuple) -> Any:
        if isinstance(choice, list):
            return choice[rng.integers(len(choice))]
        low, high, scale = choice
        return float(
            np.exp(rng.uniform(*np.log([low, high]))) if scale == "log" else rng.uniform(low, high)
        )

    return [{name: draw(choice) for name, choice in space.items()} for _ in range(trials)]


def search(config: Config, points: list[Point]) -> list[Trial]:
    """Runs every point of a search to its end; those that differ in numbers alone share one program.

    Args:
      config: the run; what a point names takes the place of its own: a hyper-parameter, or an
        option as `lr`.
      points: what to try.

    Returns:
      The trials, the best validation score first.

    Raises:
      InputError: a name or a value that the algorithm or the setting does not take.
    """
    for point in points:
        check_config(_replace(config, point))
    numbers = _swept(config.algorithm)
    groups: dict[str, list[Point]] = {}
    for point in points:
        fixed = {n: v for n, v in point.items() if not (n in numbers and _number(v))}
        groups.setdefault(repr(sorted(fixed.items())), []).append(point)
    data: dict[str, Data] = {}
    trials = []
    for group in groups.values():
        first = _replace(config, group[0])
        where = repr(
            {
                n: getattr(first, n)
                for n in NAMES - {"lr", "momentum", "weight_decay", "local_steps", "model"}
            }
        )
        data[where] = data.get(where) or gather(first)
        for point in group[1:]:
            build(
                _replace(config, point), data[where]
            )  # every value is checked before anything is run
        trials += _together(build(first, data[where]), group, numbers)
    finite = any(trial["val"] is not None for trial in trials)
    check(finite, "no trial has a finite validation score: choose other values, or --val above 0")
    return sorted(
        trials, key=lambda trial: -np.inf if trial["val"] is None else trial["val"], reverse=True
    )


def record(config: Config, trials: list[Trial], out: Path) -> Trial:
    """Writes what a search found into `out`: `sweep.json`, `sweep.png`, and `best.json`, the config of the best.

    Returns:
      The best trial by validation score: the only one whose test score is written.
    """
    best = trials[0]
    rows = [{"point": trial["point"], "val": trial["val"]} for trial in trials]
    files.write_json(out / "sweep.json", {"trials": rows, "best": best})
    files.write(out / "best.json", to_json(_replace(config, best["point"])))
    files.write(out / "sweep.png", plots.sweep(trials))
    return best


def _together(built: Built, points: list[Point], numbers: set[str]) -> list[Trial]:
    """The trials of points that differ in numbers alone, in one program."""
    config, data = built.config, built.data
    varied = [
        name
        for name in points[0]
        if name in numbers and all(_number(point[name]) for point in points)
    ]

    def trial(values: dict[str, Array], seed: Array, federation):
        algorithm = ALGORITHMS[config.algorithm](built.task, **(config.hyper | values))
        key = jax.random.key(seed, impl="threefry2x32")
        state = algorithm.init(jax.random.fold_in(key, INIT), federation.train)
        rounds = make_rounds(algorithm, built.participation)
        state, _ = rounds(
            jax.random.fold_in(key, ROUNDS), federation, state, 0, length=config.rounds
        )
        ids = jnp.arange(config.clients)
        scored = make_evaluate(algorithm, built.task, chunk=config.chunk)(
            jax.random.fold_in(jax.random.fold_in(key, EVALUATE), config.rounds),
            federation,
            state,
            ids,
        )
        return jnp.nanmean(scored.before.val), jnp.nanmean(scored.before.test)

    seeds = np.arange(config.seed, config.seed + config.seeds, dtype=np.uint32)
    run: Callable = trial
    if config.seeds > 1:
        run = jax.vmap(trial, in_axes=(None, 0, 0))
    columns = {name: jnp.array([float(point[name]) for point in points]) for name in varied}
    if columns:
        run = jax.vmap(run, in_axes=(0, None, None))
    with jax.set_mesh(mesh.make_mesh(config.devices)):
        found = jax.jit(run)(columns, seeds if config.seeds > 1 else seeds[0], data.federation)
    val, test = (
        np.asarray(mesh.fetch(x)).reshape(len(points) if columns else 1, -1).mean(axis=1)
        for x in found
    )
    each = range(len(points)) if columns else [0] * len(points)
    return [
        {"point": point, "val": _finite(float(val[i])), "test": _finite(float(test[i]))}
        for point, i in zip(points, each, strict=True)
    ]


def _swept(algorithm: str) -> set[str]:
    """The hyper-parameters that may be traced."""
    hints = typing.get_type_hints(ALGORITHMS[algorithm])
    return {name for name, hint in hints.items() if jax.Array in typing.get_args(hint)}


def _replace(config: Config, point: Point) -> Config:
    options = {name: value for name, value in point.items() if name in NAMES}
    hints = typing.get_type_hints(Setting)
    for name, value in options.items():
        check(
            accepts(hints[name], value),
            f"{option(name)} is {value!r:.80}: expected {expected(hints[name], value)}",
        )
    hyper = config.hyper | {name: value for name, value in point.items() if name not in NAMES}
    return dataclasses.replace(config, **options, hyper=hyper)


def parse_space(
    pairs: tuple[str, ...], parse: Callable[[str], Any]
) -> dict[str, list | tuple[float, float, str]]:
    """`("alpha=0.2,0.8", "lam=0.001:1:log")` -> `{"alpha": [0.2, 0.8], "lam": (0.001, 1.0, "log")}`."""
    space: dict[str, list | tuple] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        check(
            bool(name and equals and text),
            f"{pair!r}: expected NAME=VALUE,VALUE,... or NAME=LOW:HIGH[:log]",
        )
        check(name not in space, f"{name!r} is given twice: give it once, with all its values")
        if ":" not in text:
            space[name] = [parse(value) for value in text.split(",")]
            continue
        low, high, *scale = text.split(":")
        try:
            space[name] = (float(low), float(high), *(scale or ["linear"]))
            ends = space[name][:2]
            good = (
                -np.inf < ends[0] < ends[1] < np.inf
                and scale in ([], ["log"])
                and (not scale or ends[0] > 0)
            )
        except ValueError:
            good = False
        check(good, f"{pair!r} is no range: expected LOW:HIGH, or LOW:HIGH:log with a positive LOW")
    return space


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
