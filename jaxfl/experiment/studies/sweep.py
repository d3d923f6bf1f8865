"""Search over hyper-parameters: its directory, and the choice by validation alone."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.config import Config, to_json
from jaxfl.experiment.config.json_text import config_from, plugin_hint
from jaxfl.experiment.config.paths import (
    with_absolute_files,
    with_absolute_paths,
    with_plugin,
)
from jaxfl.experiment.session.interrupt import answer, hint, interruptible, interruption
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.digests import check_inputs
from jaxfl.experiment.store.read_records import read_plan, read_trials
from jaxfl.experiment.store.records import Plan, Search, Trial, TrialEntry, TrialLine
from jaxfl.experiment.studies.points import Point
from jaxfl.experiment.studies.redraw import draw_search
from jaxfl.experiment.studies.trials import (
    Group,
    build_groups,
    group_digests,
    run_group,
    with_point,
)

# (trials done, trials, the best validation score so far); None before the first score
Follow = Callable[[int, int, float | None], None]
# The files with which the directory of a search begins and ends
ENDS = (files.PLAN, "sweep.json")
NO_SCORE = "no trial has a finite validation score: choose other values, or --val above 0"


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
    groups = build_groups(config, points)
    plan: Plan = {
        "config": dataclasses.asdict(config),
        "points": points,
        "show_test": show_test,
        "inputs": group_digests(groups),
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
        groups = build_groups(with_plugin(config, plugin), plan["points"])
    check_inputs(directory / files.PLAN, plan["inputs"], group_digests(groups))
    return config, groups


def _go_on(
    config: Config, plan: Plan, groups: list[Group], out: Path, follow: Follow
) -> list[Trial]:
    """Runs the groups that are not written yet, and closes the directory."""
    written = read_trials(out / files.TRIALS, plan["points"])
    report({}, plan, follow)
    with interruptible() as request:
        seen: dict[int, Trial] = {}
        for group in groups:
            places = group.places
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


def write_trials(trials: dict[int, Trial], out: Path) -> None:
    """Adds trials to `trials.jsonl`."""
    lines = [_line(place, trial) for place, trial in trials.items()]
    files.append_lines(out / files.TRIALS, lines)


def report(trials: Mapping[int, Trial | TrialEntry], plan: Plan, follow: Follow) -> None:
    """Says how far a search is: how many trials there are, and the best validation score."""
    scores = [trial["val"] for trial in trials.values() if trial["val"] is not None]
    follow(len(trials), len(plan["points"]), max(scores, default=None))


def close(
    config: Config, plan: Plan, groups: list[Group], written: dict[int, Trial], out: Path
) -> list[Trial]:
    """Closes the directory of a search whose trials are all written.

    Returns:
      The trials, the best validation score first.

    Raises:
      InputError: no trial has a finite score; the directory is then empty again.
    """
    trials = [written[place] for group in groups for place in group.places]
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
    best = trials[0]
    rows: list[TrialEntry] = []
    for trial in trials:
        rows.append({"point": trial["point"], "val": trial["val"]})
        if show_test:
            rows[-1]["test_not_for_choosing"] = trial["test"]
    files.write_file(out / "best.json", to_json(with_point(config, best["point"])))
    draw_search(config, rows, out)
    record: Search = {"trials": rows, "best": best}
    files.write_json(out / "sweep.json", record)
    return best


def _line(place: int, trial: Trial) -> TrialLine:
    """The line of a trial in `trials.jsonl`."""
    return {"place": place, "val": trial["val"], "test_not_for_choosing": trial["test"]}
