"""Search over hyper-parameters: numbers side by side in one program, chosen by validation alone."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError, check
from jaxfl.core.options import options_of, takes_traced_numbers
from jaxfl.experiment.config import Config, Setting, resolve, to_json
from jaxfl.experiment.config.hints import hints, option, read_field
from jaxfl.experiment.config.paths import (
    with_absolute_files,
    with_absolute_paths,
    with_plugin,
)
from jaxfl.experiment.config.text import config_from, plugin_hint
from jaxfl.experiment.session.build import Built, build
from jaxfl.experiment.session.clients import Data, gather
from jaxfl.experiment.session.interrupt import answer, hint, interruptible, interruption
from jaxfl.experiment.session.lines import number_or_null
from jaxfl.experiment.session.program import START, one_seed, wait_for
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.inputs import check_inputs, digests_of
from jaxfl.experiment.store.records import (
    Digests,
    Plan,
    Search,
    Trial,
    TrialEntry,
    TrialLine,
    read_plan,
    read_trials,
)
from jaxfl.experiment.studies.points import Point
from jaxfl.simulation import mesh

# (trials done, trials, the best validation score so far); None before the first score
Follow = Callable[[int, int, float | None], None]
Group = tuple[Built, list[int]]  # a run, and the places of the points that share its program
# The files with which the directory of a search begins and ends
ENDS = (files.PLAN, "sweep.json")
OPTIONS = hints(Setting)  # by name
NO_SCORE = "no trial has a finite validation score: choose other values, or --val above 0"
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


def silent(done: int, total: int, best: float | None) -> None:
    """Follows a search without a word."""


def search(
    config: Config,
    points: list[Point],
    out: Path,
    *,
    overwrite: bool = False,
    show_test: bool = False,
    follow: Follow = silent,
) -> list[Trial]:
    """Runs every point of a search to its end; points that differ in numbers share one program.

    Trials are written when their program is done, so that `resume_search` goes on with the rest.

    Args:
      config: the run; what a point names takes the place of its own: a hyper-parameter, or an
        option as `lr`.
      points: what to try.
      out: the directory to write, see docs/files.md.
      overwrite: replace what it holds.
      show_test: whether `sweep.json` has the test score of every trial.
      follow: called when the search begins, and after each program.

    Returns:
      The trials, the best validation score first.

    Raises:
      InputError: a name or a value that the algorithm or the setting does not take, or the
        directory holds something, or no trial has a finite validation score.
      KeyboardInterrupt: Ctrl-C or SIGTERM (`Terminated`), after the program that was under way.

    Example:
      >>> config = Config(algorithm="fedprox", clients=5, rounds=1, local_steps=5)
      >>> trials = search(config, [{"mu": 0.1}, {"mu": 1.0}], Path("runs/search"))
      >>> len(trials), trials[0]["val"] >= trials[1]["val"]
      (2, True)
    """
    config, plan, groups = _prepare(config, points, out, overwrite, show_test)
    with locks.locked(out):
        _write_plan(plan, out, overwrite)
        with hint(out, *ENDS):
            return _go_on(config, plan, groups, out, follow)


def plan_search(
    config: Config,
    points: list[Point],
    out: Path,
    *,
    overwrite: bool = False,
    show_test: bool = False,
) -> None:
    """Writes what workers need for a search, whose trials they take: see `work_on_search`.

    It runs nothing; what cannot be run is refused here, by the process that plans.

    Args:
      config: as in `search`.
      points: as in `search`.
      out: as in `search`.
      overwrite: as in `search`.
      show_test: as in `search`.

    Raises:
      InputError: as `search`.

    Example:
      >>> config = Config(algorithm="fedprox", clients=5, rounds=1, local_steps=5)
      >>> plan_search(config, [{"lr": 0.1}, {"lr": 1.0}], Path("runs/planned_search"))
      >>> [path.name for path in Path("runs/planned_search").iterdir()]
      ['search.json']
    """
    plan = _prepare(config, points, out, overwrite, show_test)[1]
    with locks.locked(out):
        _write_plan(plan, out, overwrite)


def _prepare(
    config: Config, points: list[Point], out: Path, overwrite: bool, show_test: bool
) -> tuple[Config, Plan, list[Group]]:
    """Checks and builds what a search needs, before anything is written."""
    locks.check_free([out], overwrite)
    config = with_absolute_paths(config)
    points = [with_absolute_files(point) for point in points]
    groups = _build_groups(config, points)
    plan: Plan = {
        "config": dataclasses.asdict(config),
        "points": points,
        "show_test": show_test,
        "inputs": _digests(groups),
    }
    return config, plan, groups


def _write_plan(plan: Plan, out: Path, overwrite: bool) -> None:
    """Opens the directory of a search, which this process has locked."""
    files.create(out, files.EVERYTHING, overwrite)
    files.write_json(out / files.PLAN, plan)


def resume_search(
    directory: Path, *, plugin: Sequence[str] | None = None, follow: Follow = silent
) -> list[Trial]:
    """Goes on with a search that was stopped: trials that are written are not run again.

    Args:
      directory: of the search.
      plugin: the files that were given with `--plugin` now, if the command line goes on.
      follow: as in `search`.

    Returns:
      As `search`.

    Raises:
      InputError: there is no such search, it is finished, or what it reads has changed.
      KeyboardInterrupt: as `search`.
    """
    search_to_resume(directory)
    with locks.locked(directory), hint(directory, *ENDS):
        plan = search_to_resume(directory)[1]
        config, groups = groups_to_resume(directory, plan, plugin)
        return _go_on(config, plan, groups, directory, follow)


def search_to_resume(directory: Path) -> tuple[Config, Plan]:
    """The config and the plan of a search that can go on.

    Raises:
      InputError: there is no such search, or it is finished.
    """
    plan = read_plan(directory / files.PLAN)
    check(
        not (directory / "sweep.json").exists(),
        f"the search in {directory} is finished: read sweep.json, or search anew with --overwrite",
    )
    return config_from(plan["config"], directory / files.PLAN), plan


def groups_to_resume(
    directory: Path, plan: Plan, plugin: Sequence[str] | None
) -> tuple[Config, list[Group]]:
    """The config of a search, and its trials by the program that they share.

    Raises:
      InputError: what the trials read has changed.
    """
    config = config_from(plan["config"], directory / files.PLAN)
    with plugin_hint(config.plugin):  # also of the names in the points
        groups = _build_groups(with_plugin(config, plugin), plan["points"])
    check_inputs(directory / files.PLAN, plan["inputs"], _digests(groups))
    return config, groups


def _build_groups(config: Config, points: list[Point]) -> list[Group]:
    """Builds and checks what all points need, before anything is run.

    Points that differ in numbers alone are one group.
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
    configs = [_with_point(config, point) for point in points]  # every value is checked
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
        ready.append((build(first, data[where]), group))
    return ready


def _digests(groups: list[Group]) -> Digests:
    """The digests of all that the trials read."""
    data = {id(built.data): built.data for built, _ in groups}
    return digests_of([built.config for built, _ in groups], [one.digest for one in data.values()])


def _go_on(
    config: Config, plan: Plan, groups: list[Group], out: Path, follow: Follow
) -> list[Trial]:
    """Runs the groups that are not written yet, and closes the directory."""
    written = read_trials(out / files.TRIALS, plan["points"])
    report({}, plan, follow)
    with interruptible() as request:
        seen: dict[int, Trial] = {}
        for group in groups:
            places = group[1]
            if not written.keys() >= set(places):
                if request.is_set():
                    raise interruption(request.number)
                trials = run_group(group, plan, answer(request, "trials"))
                write_trials(trials, out)
                written |= trials
            seen |= {place: written[place] for place in places}
            report(seen, plan, follow)
        trials = close(config, plan, groups, written, out)
        if request.is_set():
            raise interruption(request.number, f"the search in {out} is finished")
    return trials


def run_group(group: Group, plan: Plan, meanwhile: Callable[[], None]) -> dict[int, Trial]:
    """Runs the trials that share a program.

    Args:
      group: the trials.
      plan: of the search.
      meanwhile: called again and again while the devices compute.

    Returns:
      The trials by their places in the list of points.
    """
    built, places = group
    points = [plan["points"][place] for place in places]
    numbers = _number_names(built.config.algorithm)
    return dict(zip(places, _together(built, points, numbers, meanwhile), strict=True))


def write_trials(trials: dict[int, Trial], out: Path) -> None:
    """Adds trials to `trials.jsonl`."""
    lines = [_line(place, trial) for place, trial in trials.items()]
    files.append_lines(out / files.TRIALS, lines)


def report(trials: Mapping[int, Trial | TrialEntry], plan: Plan, follow: Follow) -> None:
    """Says how far a search is: how many trials there are, and the best validation score."""
    scores = [trial["val"] for trial in trials.values() if trial["val"] is not None]
    follow(len(trials), len(plan["points"]), max(scores, default=None))


def name_of(group: Group) -> str:
    """The trials of a group in words.

    Example:
      >>> name_of((None, [4])), name_of((None, [0, 2, 5]))
      ('trial 5', 'trial 1 and 2 more')
    """
    first, *others = group[1]
    return f"trial {first + 1}{f' and {len(others)} more' if others else ''}"


def close(
    config: Config, plan: Plan, groups: list[Group], written: dict[int, Trial], out: Path
) -> list[Trial]:
    """Closes the directory of a search whose trials are all written.

    Returns:
      The trials, the best validation score first.

    Raises:
      InputError: no trial has a finite score; the directory is then empty again.
    """
    trials = [written[place] for _, places in groups for place in places]
    if all(trial["val"] is None for trial in trials):
        for name in (files.PLAN, files.TRIALS):
            files.remove(out / name)
        raise InputError(NO_SCORE)
    trials.sort(key=lambda trial: -np.inf if trial["val"] is None else trial["val"], reverse=True)
    write_search(config, trials, out, show_test=plan["show_test"])
    files.remove(out / files.TRIALS)
    return trials


def write_search(
    config: Config, trials: list[Trial], out: Path, *, show_test: bool = False
) -> Trial:
    """Writes what a search found into `out`.

    These are `sweep.png`, `best.json`, the config of the best, and last `sweep.json`.

    Args:
      config: the run.
      trials: of `search`.
      out: the directory to write.
      show_test: whether the test score of every trial is written, as `test_not_for_choosing`.

    Returns:
      The best trial by validation score: the only one whose test score is written by default.
    """
    from jaxfl.experiment.pictures.curves import draw_sweep
    from jaxfl.experiment.pictures.drawing import write_picture
    from jaxfl.experiment.tables.heading import setting_line

    best = trials[0]
    rows: list[TrialEntry] = []
    for trial in trials:
        rows.append({"point": trial["point"], "val": trial["val"]})
        if show_test:
            rows[-1]["test_not_for_choosing"] = trial["test"]
    files.write_file(out / "best.json", to_json(_with_point(config, best["point"])))
    title = f"{config.algorithm}: {setting_line([config])}" if config.title else ""
    write_picture(out, "sweep", draw_sweep(trials, title, config.metric), config.format)
    record: Search = {"trials": rows, "best": best}
    files.write_json(out / "sweep.json", record)
    return best


def _line(place: int, trial: Trial) -> TrialLine:
    """The line of a trial in `trials.jsonl`."""
    return {"place": place, "val": trial["val"], "test_not_for_choosing": trial["test"]}


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
    config, seeds = built.config, built.seeds
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
        state, _ = advance(config.rounds, seed, federation, state, START)
        models = deploy(federation, state, ids)
        evaluation = assess(seed, federation, models, config.rounds, ids)
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


def _with_point(config: Config, point: Point) -> Config:
    options = {
        name: read_field(option(name), OPTIONS[name], value)
        for name, value in point.items()
        if name in OPTIONS
    }
    hyper = {name: value for name, value in point.items() if name not in OPTIONS}
    return dataclasses.replace(config, **options, hyper=config.hyper | hyper)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
