"""The setting of one or several runs in words: the heading of tables and the title of pictures.

How an option is called there stands in its hint, `config.notes.Heading`.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from jaxfl.experiment.config import Config, Setting
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.config.fields import DataOptions
from jaxfl.experiment.config.hints import marked, notes_of
from jaxfl.experiment.config.notes import NO_SCORE, OF_CLIENTS, Effect, Heading
from jaxfl.experiment.store.records import Runs

# Options that say how a run was made and not what it is.
UNIMPORTANT = {"algorithm", "eval_every", "hyper", "label"} | marked(Config, NO_SCORE)
# Options on which clients and scores depend: runs that differ in one cannot be compared.
SAME_CLIENTS = {one.name for one in fields(DataOptions)} | marked(Setting, OF_CLIENTS)
# The parts of a heading, with commas within a sentence and semicolons between sentences.
SENTENCES = (("data",), ("clients",), ("rounds", "training", "seeds"))
NOTES = notes_of(Setting)
HEADINGS = [(name, x) for name, notes in NOTES.items() for x in notes if isinstance(x, Heading)]
DEFAULTS = {one.name: one.default for one in fields(Setting)}
Configs = Sequence[Config | None]  # None where the config of a run is unknown


def setting_line(configs: Configs) -> str:
    """The setting that all runs share, and the options in which they differ; "" if unknown."""
    configs = [config for config in configs if config is not None]
    if not configs:
        return ""
    names = _difference_names(configs)
    first = configs[0]
    options = {
        one.name: getattr(first, one.name) for one in fields(Config) if one.name not in names
    }
    line = _sentences(options)
    if names:
        line += f"; the runs differ in {' and '.join(option(name) for name in names)}"
    return line.removeprefix("; ")


def graph_title(config: Config, number: int | None = None) -> str:
    """The title of a picture of the graph of a round.

    Args:
      config: of the run.
      number: of the round; None: the last one.
    """
    number = config.rounds if number is None else number
    several = {"seed": config.seeds, "fold": config.folds}
    names = [name for name, count in several.items() if count > 1]
    seed = f", first {' and '.join(names)}" if names else ""
    return f"{config.name}, round {number}{seed}: {setting_line([config])}"


def setting_of(runs: Runs) -> str:
    """The `setting_line` of runs."""
    return setting_line([run.config for run in runs.values()])


def data_line(options: DataOptions) -> str:
    """The data and the clients in words."""
    values = {one.name: getattr(options, one.name) for one in fields(DataOptions)}
    return _sentences(values, SENTENCES[:2])


def differing_options(runs: Runs) -> list[str]:
    """The options that are not the same in all runs; those whose config is unknown are left out."""
    return _difference_names([run.config for run in runs.values()])


def have_same_clients(runs: Runs) -> bool:
    """Whether the scores of the runs can be compared; unknown configs are taken to fit."""
    return not SAME_CLIENTS.intersection(differing_options(runs))


def _difference_names(configs: Configs) -> list[str]:
    configs = [config for config in configs if config is not None]
    names = [one.name for one in fields(Config) if one.name not in UNIMPORTANT]
    return [name for name in names if len({repr(getattr(one, name)) for one in configs}) > 1]


def _sentences(options: dict[str, Any], sentences: Sequence[Sequence[str]] = SENTENCES) -> str:
    """What is told of options.

    Args:
      options: the options that all runs share, by name.
      sentences: the parts that are told.
    """
    groups = [
        [text for part in parts for text in _phrases(options, part=part)] for parts in sentences
    ]
    return "; ".join(", ".join(texts) for texts in groups if texts)


def _phrases(options: dict[str, Any], part: str = "", behind: str = "") -> list[str]:
    """What is told in a part of the heading, or behind an option."""
    texts = []
    for name, heading in HEADINGS:
        if (heading.part, heading.behind) == (part, behind) and _is_relevant(
            name, heading, options
        ):
            text = heading.text(options[name])
            details = ", ".join(_phrases(options, behind=name))
            texts.append(f"{text} ({details})" if details else text)
    return texts


def _is_relevant(name: str, heading: Heading, options: dict[str, Any]) -> bool:
    """Whether the runs share a value of the option that is worth telling."""
    value = options.get(name)
    if value is None or (value == DEFAULTS[name] and not heading.always):
        return False
    if heading.unless and options.get(heading.unless) != DEFAULTS[heading.unless]:
        return False
    effects = [note for note in NOTES[name] if isinstance(note, Effect)]
    conditions = effects if heading.where is None else [heading.where]
    return all(condition.hold(options, DEFAULTS) for condition in conditions)
