"""The trials of a search: those that differ in numbers alone run side by side, in one program."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import check
from jaxfl.core.options import options_of, takes_traced_numbers
from jaxfl.experiment.config import Config, Setting, resolve
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.config.hints import hints, read_field
from jaxfl.experiment.config.json_text import with_none
from jaxfl.experiment.session.build import Built, build
from jaxfl.experiment.session.gather import Data, gather
from jaxfl.experiment.session.lines import number_or_null
from jaxfl.experiment.session.run_program import START, one_seed, wait_for
from jaxfl.experiment.store.digests import digests_of
from jaxfl.experiment.store.records import Digests, Plan, Trial
from jaxfl.experiment.studies.points import Point
from jaxfl.simulation import mesh

OPTIONS = hints(Setting)  # by name
# Trials that differ in these options share their clients.
SHARED = {
    "lr",
    "optimizer",
    "momentum",
    "weight_decay",
    "schedule",
    "decay",
    "decay_every",
    "local_steps",
    "model",
}


class Group(NamedTuple):
    """The trials that share a program."""

    config: Config  # of the first one
    built: Built
    places: list[int]  # among the points


def build_groups(config: Config, points: list[Point]) -> list[Group]:
    """Builds and checks what all points need, before anything is run.

    Args:
      config: the run; what a point names takes the place of its own.
      points: what to try.

    Returns:
      Groups of points that differ in numbers alone.

    Raises:
      InputError: a point or an option of the run is not for a search.
    """
    check(
        config.store is None,
        "--store is given, and a search keeps the clients of its trials in memory: leave it out",
    )
    check(
        all("metric" not in point for point in points),
        "metric is one of the values to try, and the first metric ranks the trials: give --metric, "
        "the same for all",
    )
    configs = [with_point(config, point) for point in points]  # every value is checked
    check(
        all(one.stop_after is None for one in configs),
        "--stop-after is given, and all trials of a search have the same rounds, in one program: "
        "leave it out, and give it to jaxfl run --config best.json",
    )
    numbers = _number_names(config.algorithm)
    groups: dict[str, list[int]] = {}
    for place, point in enumerate(points):
        constants = {n: v for n, v in point.items() if not (n in numbers and _is_number(v))}
        groups.setdefault(repr(sorted(constants.items())), []).append(place)
    data: dict[str, Data] = {}
    ready = []
    for group in groups.values():
        first = resolve(configs[group[0]])
        where = repr([getattr(first.config, name) for name in sorted(OPTIONS.keys() - SHARED)])
        if where not in data:
            data[where] = gather(first)
        for place in group[1:]:
            build(first.replace(hyper=configs[place].hyper), data[where])
        ready.append(Group(first.config, build(first, data[where]), group))
    return ready


def group_digests(groups: list[Group]) -> Digests:
    """The digests of all that the trials read."""
    data = {id(group.built.data): group.built.data for group in groups}
    return digests_of([group.config for group in groups], [one.digest for one in data.values()])


def run_group(group: Group, plan: Plan, meanwhile: Callable[[], None]) -> dict[int, Trial]:
    """Runs the trials that share a program.

    Args:
      group: the trials.
      plan: of the search.
      meanwhile: called again and again while the devices compute.

    Returns:
      The trials by their places in the list of points.
    """
    points = [plan["points"][place] for place in group.places]
    numbers = _number_names(group.config.algorithm)
    return dict(zip(group.places, _together(group.built, points, numbers, meanwhile), strict=True))


def name_of(places: list[int]) -> str:
    """Trials in words.

    Args:
      places: among the points.

    Example:
      >>> name_of([4]), name_of([0, 2, 5])
      ('trial 5', 'trial 1 and 2 more')
    """
    first, *others = places
    return f"trial {first + 1}{f' and {len(others)} more' if others else ''}"


def _together(
    built: Built, points: list[Point], numbers: set[str], meanwhile: Callable[[], None]
) -> list[Trial]:
    """The trials of points that differ in numbers alone, in one program.

    Args:
      built: the run of the first point.
      points: of the trials.
      numbers: the hyper-parameters that may be traced.
      meanwhile: called again and again while the devices compute.
    """
    rounds, seeds = built.options.run.rounds, built.seeds
    names = [
        name
        for name in points[0]
        if name in numbers and all(_is_number(point[name]) for point in points)
    ]

    # As in a run, malicious clients have no scores.
    ids = jnp.flatnonzero(~(built.unseen | built.malicious))

    def trial(values: dict[str, Array], seed: Array, federation):
        init, advance, deploy, assess = one_seed(built, built.with_hyper(**values), "none")
        state = init(seed, federation)
        state, _ = advance(rounds, seed, federation, state, START)
        models = deploy(federation, state, ids)
        evaluation = assess(seed, federation, models, rounds, ids)
        return jnp.nanmean(evaluation.deployed.val), jnp.nanmean(evaluation.deployed.test)

    run: Callable = seeds.each(trial, (None, 0, 0))
    columns = {name: jnp.array([float(point[name]) for point in points]) for name in names}
    if columns:
        run = jax.vmap(run, in_axes=(0, None, None))
    with jax.set_mesh(mesh.make_mesh(built.devices)):
        results = jax.jit(run)(columns, seeds.argument(), built.data.federation)
        wait_for(results, meanwhile)
    count = len(points) if columns else 1
    val, test = (np.asarray(mesh.fetch(x)).reshape(count, -1).mean(axis=1) for x in results)
    each = range(len(points)) if columns else [0] * len(points)
    return [
        {"point": point, "val": number_or_null(val[i]), "test": number_or_null(test[i])}
        for point, i in zip(points, each, strict=True)
    ]


def _number_names(algorithm: str) -> set[str]:
    """The hyper-parameters that may be traced."""
    parameters = options_of(ALGORITHMS[algorithm])
    return {name for name, parameter in parameters.items() if takes_traced_numbers(parameter.hint)}


def with_point(config: Config, point: Point) -> Config:
    """The config of a trial: what its point names takes the place of the run's own.

    Raises:
      InputError: an option does not take the value.

    Example:
      >>> trial = with_point(Config(algorithm="fedprox"), {"lr": 0.3, "mu": 1.0})
      >>> trial.lr, trial.hyper
      (0.3, {'mu': 1.0})
      >>> with_point(Config(algorithm="pfedgraph"), {"alpha": "none"}).hyper
      {'alpha': None}
    """
    options = {
        name: read_field(option(name), OPTIONS[name], value)
        for name, value in point.items()
        if name in OPTIONS
    }
    hyper = {name: value for name, value in point.items() if name not in OPTIONS}
    hyper = config.hyper | with_none(config.algorithm, hyper)
    return dataclasses.replace(config, **options, hyper=hyper)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
