"""Which runs can stand in one table, and the short names that they have there."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxfl.experiment.config.composite import typed
from jaxfl.experiment.config.hints import as_typed
from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.tables.heading import SAME_CLIENTS, differing_options, setting_of


class Group(NamedTuple):
    """Runs with the same clients: their scores can be compared."""

    # What the other groups have otherwise, as "--partition :beta=0.1"; "" if there is one group.
    setting: str
    runs: Runs  # by short names


def comparable_groups(runs: Runs) -> list[Group]:
    """The runs in groups with the same clients, in the order of the options that differ.

    Runs whose config is unknown are taken to fit if there is one group; else they stand alone.
    """
    with_config = {label: run for label, run in runs.items() if run.config is not None}
    names = [name for name in differing_options(runs) if name in SAME_CLIENTS]
    # Seeds of pooled runs need not follow each other, and then their configs do not tell them.
    if not names and len({run.seeds for run in with_config.values()}) < 2:
        return [Group("", shortly_named(runs))]
    members: dict[tuple, Runs] = {}
    for label, run in with_config.items():
        values = tuple(run.option(name) for name in names)
        members.setdefault((values, run.seeds), {})[label] = run
    settings = [values for values, _ in members]

    def setting(values: tuple, seeds: tuple[int, ...]) -> str:
        options = _as_options(names, values)
        if settings.count(values) == 1:
            return options
        return ", ".join(part for part in (options, f"seeds {' '.join(map(str, seeds))}") if part)

    groups = [
        Group(setting(*key), shortly_named(members[key]))
        for key in sorted(members, key=lambda key: ([sort_key(value) for value in key[0]], key[1]))
    ]
    others = {label: run for label, run in runs.items() if label not in with_config}
    return groups + [Group("unknown setting", {label: run}) for label, run in others.items()]


def heading(group: Group) -> str:
    """The setting of the runs; "" if it is unknown."""
    return ": ".join(part for part in (group.setting, setting_of(group.runs)) if part)


def shortly_named(runs: Runs, ignored: str | None = None) -> Runs:
    """The runs by the shortest names that tell them apart.

    That is the `name` of a run; where this occurs twice, with the hyper-parameters,
    then with the options in which these runs differ, else as it was named before.

    Args:
      runs: by other names.
      ignored: an option or a hyper-parameter that no name has.
    """
    names = {label: run.name or label for label, run in runs.items()}
    for further in (_with_hyper, _with_options):
        for name in _twice(names.values()):
            same = [label for label in names if names[label] == name]
            if all(runs[label].config is not None for label in same):
                longer = further(name, {label: runs[label] for label in same}, ignored)
                names |= dict(zip(same, longer, strict=True))
    twice = _twice(names.values())
    return {(label if names[label] in twice else names[label]): run for label, run in runs.items()}


def sort_key(value: Any) -> tuple[int, Any]:
    """Orders values of an option: nothing, then numbers, then texts."""
    if value is None:
        return (0, 0)
    return (1, value) if isinstance(value, bool | int | float) else (2, str(value))


def _twice(names: Iterable[str]) -> list[str]:
    names = list(names)
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def _with_hyper(name: str, runs: Runs, ignored: str | None) -> list[str]:
    """The name with the hyper-parameters in which the runs differ, as `jaxfl compare` takes it."""
    each = [run.hyper for run in runs.values()]
    keys = sorted({key for hyper in each for key in hyper} - {ignored})
    keys = [key for key in keys if len({repr(hyper.get(key)) for hyper in each}) > 1]
    texts = []
    for hyper in each:
        pairs = [f"{key}={hyper[key]}" for key in keys if key in hyper]
        texts.append(f"{name}:{','.join(pairs)}" if pairs else name)
    return texts


def _with_options(name: str, runs: Runs, ignored: str | None) -> list[str]:
    names = [one for one in differing_options(runs) if one != ignored]
    values = [[run.option(one) for one in names] for run in runs.values()]
    return [f"{name} {_as_options(names, row)}".strip() for row in values]


def _as_options(names: list[str], values: Iterable[Any]) -> str:
    options = typed({name: as_typed(value) for name, value in zip(names, values, strict=True)})
    return " ".join(f"{name} {value}" for name, value in options.items())
