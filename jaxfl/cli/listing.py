"""`jaxfl list`: the names that there are, by kind, and everything about one of them."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli.command_options import List
from jaxfl.cli.describe_method import describe_factory, describe_function, first_line, short_line
from jaxfl.cli.groups import metavar, text_of
from jaxfl.core.errors import check_name
from jaxfl.data import CONCEPTS, PARTITIONS, list_data_sets
from jaxfl.data.augment import AUGMENTATIONS
from jaxfl.experiment.config import PRESETS
from jaxfl.experiment.config.composite import KEEP, dashed, owners, typed
from jaxfl.experiment.config.hints import as_typed, hints
from jaxfl.experiment.config.presets.definition import Preset
from jaxfl.experiment.config.setting import SettingOptions
from jaxfl.kernels.similarity import MEASURES
from jaxfl.models import MODELS
from jaxfl.simulation import scoring
from jaxfl.simulation.metrics import METRICS, Metric
from jaxfl.uplink import ATTACKS

# The widest line of a text; a terminal may have less.
WIDEST = 100
# A label that is longer stands on a line of its own.
WIDEST_LABEL = 22

Description = list[str | dict[str, str]]  # paragraphs, and tables of a label and a text


# A line about a function, and all about it.
FUNCTIONS = (first_line, describe_function)


class Kind(NamedTuple):
    """A kind of names."""

    noun: str  # one of them
    use: str  # how it is used on the command line
    values: dict[str, Any]  # what the names stand for
    line: Callable[[Any], str]  # a line about it
    describe: Callable[[Any], Description]  # all about it


def kinds(data_dir: str | None) -> dict[str, Kind]:
    """All kinds of names, by the word for several of them."""
    data = list_data_sets(data_dir)
    return {
        "algorithms": Kind("algorithm", "jaxfl run {}", ALGORITHMS, short_line, describe_factory),
        "datasets": Kind("data set", "--dataset {}", data, str, lambda text: [text]),
        "partitions": Kind(
            "partition", "--partition {}", PARTITIONS, first_line, describe_function
        ),
        "concepts": Kind("concept", "--concept {}", CONCEPTS, *FUNCTIONS),
        "models": Kind("model", "--model {}", MODELS, first_line, _model),
        "augments": Kind(
            "augmentation", "--augment {}", AUGMENTATIONS, first_line, describe_function
        ),
        "attacks": Kind("attack", "--attack {}", ATTACKS, *FUNCTIONS),
        "measures": Kind("measure", "--hyper measure={}", MEASURES, *FUNCTIONS),
        "metrics": Kind("metric", "--metric {}", METRICS, _metric_line, _metric),
        "options": Kind(
            "option", "{} in Python and config.json", _options(), str, lambda text: [text]
        ),
        "presets": Kind("preset", "--preset {}", PRESETS, lambda preset: preset.source, _preset),
    }


def show(command: List, console: Console) -> None:
    """`jaxfl list`."""
    every = kinds(command.data_dir)
    width = min(console.width, WIDEST) if console.is_terminal else WIDEST
    if command.what is None:
        lines = overview(every, width)
    elif command.what in every:
        kind = every[command.what]
        texts = {name: kind.line(value) for name, value in kind.values.items()}
        texts, notes = shared_clauses(texts) if command.what == "presets" else (texts, {})
        lines = table(texts, width if console.is_terminal else None)
        if notes:
            lines += ["", "Of several:", *table(notes, width if console.is_terminal else None)]
    else:
        names = [name for kind in every.values() for name in kind.values]
        check_name("kind or name", command.what, [*every, *names], "see `jaxfl list`")
        lines = []
        for kind in every.values():
            if command.what in kind.values:
                lines += [f"{command.what}: {kind.noun}, {kind.use.format(command.what)}", ""]
                lines += page(kind.describe(kind.values[command.what]), width)
    for line in lines:
        console.out(line, highlight=False)


def overview(every: dict[str, Kind], width: int) -> list[str]:
    """The names of each kind."""
    lines = []
    for plural, kind in every.items():
        names = wrap("  ".join(kind.values), width, "  ", "  ")
        lines += [f"{plural} ({kind.use.format('NAME')})", *names, ""]
    more = {
        "jaxfl list algorithms": "a line about each algorithm; the same for each kind",
        "jaxfl list pfedgraph": "all about one name: its paper, hyper-parameters, what to turn",
    }
    return lines + table(more, width)


def shared_clauses(texts: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What is true of one name alone, and once what is true of several names.

    Args:
      texts: name -> clauses with semicolons between them.

    Returns:
      name -> its own clauses; and "first to last" of several names -> the clauses that they share.

    Example:
      >>> shared_clauses({"a": "one; both", "b": "two; both"})
      ({'a': 'one', 'b': 'two'}, {'a to b': 'both'})
    """
    names_of: dict[str, list[str]] = {}
    for name, text in texts.items():
        for clause in text.split("; "):
            names_of.setdefault(clause, []).append(name)
    own = {
        name: "; ".join(clause for clause in text.split("; ") if names_of[clause] == [name])
        for name, text in texts.items()
    }
    order = list(texts)
    shared: dict[str, list[str]] = {}
    for clause, names in names_of.items():
        if len(names) > 1:
            first, last = order.index(names[0]), order.index(names[-1])
            in_a_row = order[first : last + 1] == names
            label = f"{names[0]} to {names[-1]}" if in_a_row else ", ".join(names)
            shared.setdefault(label, []).append(clause)
    return own, {label: "; ".join(clauses) for label, clauses in shared.items()}


def page(description: Description, width: int) -> list[str]:
    """Paragraphs and tables with an empty line after each."""
    lines = []
    for part in description:
        lines += table(part, width) if isinstance(part, dict) else wrap(part, width)
        lines.append("")
    return lines


def table(texts: dict[str, str], width: int | None) -> list[str]:
    """Labels and their texts side by side.

    Args:
      texts: label -> text.
      width: of the lines; None to have each text on one line.
    """
    room = 2 + max((len(label) for label in texts if len(label) <= WIDEST_LABEL), default=0)
    if width is None:
        room = 2 + max(map(len, texts), default=0)
    lines = []
    for label, text in texts.items():
        if len(label) + 2 > room:
            lines.append(label)
        first = label.ljust(room) if len(label) + 2 <= room else room * " "
        lines += wrap(text, width, first, room * " ")
    return lines


def wrap(text: str, width: int | None, first: str = "", others: str = "") -> list[str]:
    """A text in lines of a width, with an indentation; names and links stay whole."""
    if width is None:
        return [first + " ".join(text.split())]
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _options() -> dict[str, str]:
    """The fields of a config: how each is typed, and what it is."""
    known = hints(SettingOptions)
    return {name: f"{_typed(name, known[name])}: {text_of(SettingOptions, name)}" for name in known}


def _typed(name: str, hint: Any) -> str:
    """How a field is typed: "--attack VALUE:ratio=FLOAT" of `attack_ratio`."""
    kind = metavar(hint)
    pairs = [
        f"--keep {key}={kind}" if owner == KEEP else f"{dashed(owner)} VALUE:{key}={kind}"
        for owner, key in owners(name)
    ]
    return " or ".join(pairs) or f"{dashed(name)} {kind}"


def _metric_line(metric: Metric) -> str:
    """A line about a metric."""
    return first_line(metric.score)


def _metric(metric: Metric) -> Description:
    """What a metric is, whether its lower or its higher values are better, and of what targets."""
    targets = "labels or numbers" if metric.targets == "any" else metric.targets
    direction = f"{metric.better} is better"
    if metric.better == "neither":
        direction = "neither higher nor lower is better"
    text = f"{metric.title}: for targets that are {targets}; {direction}."
    return [text, *describe_function(metric.score)]


def _model(model: Any) -> Description:
    """What a model is, and its options in Python."""
    description = describe_function(model)
    options = {
        f"{name}={parameter.default}": ""
        for name, parameter in inspect.signature(model).parameters.items()
        if parameter.default is not inspect.Parameter.empty and name not in ("parent", "name")
    }
    return [*description, "In Python: " + ", ".join(options)] if options else description


def _preset(preset: Preset) -> Description:
    """The protocol of a preset, as options of the command line."""
    words = typed({name: as_typed(value) for name, value in preset.options.items()})
    options = " ".join(f"{name} {value}" for name, value in words.items())
    hyper = {
        name: " ".join(f"{key}={value}" for key, value in values.items())
        for name, values in preset.hyper.items()
    }
    rule = (inspect.getdoc(scoring.RULES[preset.rule]) or "").partition(" [")[0]  # of the shape
    stages = {
        stage: ", ".join(method for method, scored in preset.stages.items() if scored == stage)
        for stage in scoring.TABLE_STAGES
    }
    stages[preset.stage] = "all other methods" if any(stages.values()) else "all methods"
    return [
        preset.source,
        {"options": options},
        *(["Hyper-parameters:", hyper] if hyper else []),
        f"Score ({preset.rule}): {rule[:1].lower()}{rule[1:]}. The models that are scored: "
        "deployed, trained in the round before the server answers, or the better of both:",
        {stage: methods for stage, methods in stages.items() if methods},
    ]
