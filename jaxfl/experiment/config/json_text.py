"""Configs, values and the methods of a comparison as text: JSON, and KEY=VALUE words."""

import dataclasses
import json
import re
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError, UnknownName, check, check_name
from jaxfl.core.options import accepts, options_of
from jaxfl.experiment.config.composite import BETWEEN
from jaxfl.experiment.config.hints import hints, read_field
from jaxfl.experiment.config.setting import Config, ForeignConfig


def parse_hyper(pairs: Sequence[str]) -> dict[str, Any]:
    """`("alpha=0.5", "anchor=approx")` -> `{"alpha": 0.5, "anchor": "approx"}`."""
    hyper = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        check(
            bool(key and equals),
            f"hyper-parameter {pair!r}: expected KEY=VALUE, for example alpha=0.5",
        )
        check(key not in hyper, f"hyper-parameter {key!r} is given twice: give it once")
        hyper[key] = parse_value(value)
    return hyper


def parse_value(text: str) -> Any:
    """A value on the command line: JSON, or a number such as .5, else the text itself.

    Example:
      >>> parse_value("[1, 2]"), parse_value("-.5"), parse_value("cosine")
      ([1, 2], -0.5, 'cosine')
    """
    try:
        # JSON wants a digit before the point.
        return parse_json(re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", text))
    except ValueError:
        return text


def with_none(algorithm: str, hyper: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters, in which `none` is None where it is no name that the option takes.

    Example:
      >>> with_none("pfedgraph", {"alpha": "none", "prior": "none"})
      {'alpha': None, 'prior': 'none'}
    """
    check_name("algorithm", algorithm, ALGORITHMS)
    options = options_of(ALGORITHMS[algorithm])
    return {
        name: None
        if value == "none" and name in options and not accepts(options[name].hint, value)
        else value
        for name, value in hyper.items()
    }


def parse_part(hint: Any, text: str) -> Any:
    """A value behind a key of an option, as in `--attack mimic:clients=0+3`.

    Args:
      hint: of its field.
      text: behind the key.

    Example:
      >>> parse_part(tuple[int, ...], "0+3"), parse_part(str, "7"), parse_part(float, ".5")
      ((0, 3), '7', 0.5)
    """
    plain = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    if typing.get_origin(plain) is tuple:
        return tuple(parse_value(one) for one in text.split(BETWEEN))
    return text if plain is str else parse_value(text)


def parse_json(text: str) -> Any:
    """A JSON value.

    Raises:
      ValueError: the text is no JSON, holds NaN or infinity, or is nested deeper than any of ours.
    """

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def to_json(config: Config | Sequence[Config]) -> str:
    """The config, or a list of configs, as indented JSON, every field with its value."""
    content = (
        dataclasses.asdict(config)
        if isinstance(config, Config)
        else [dataclasses.asdict(one) for one in config]
    )
    return json.dumps(content, indent=2) + "\n"


def load_config(path: Path) -> Config:
    """The config of a `config.json`.

    Raises:
      InputError: no such file, no JSON, or not the fields and values of a config.

    Example:
      >>> load_config(Path("runs/digits/config.json")).algorithm
      'fedavg'
    """
    return config_from(_read(path, "a config"), path)


def load_finished_config(path: Path) -> Config:
    """The config of a finished run, to show it; names of its plug-ins need not be known here.

    Raises:
      InputError: as `load_config`, but for names of algorithms, partitions, models and others.
    """
    content = _read(path, "a config")
    try:
        return config_from(content, path)
    except UnknownName:
        return config_from(content, path, ForeignConfig)


def load_configs(path: Path) -> list[Config]:
    """The configs of the `configs.json` of a comparison.

    Raises:
      InputError: no such file, no JSON, or not configs whose runs have names of their own.
    """
    content = _read(path, "configs")
    check(
        isinstance(content, list) and bool(content),
        f"{path} is no list of configs: remove it, and resume each run beside it",
    )
    configs = [config_from(one, path) for one in content]
    names = [config.name for config in configs]
    check(
        len(set(names)) == len(names),
        f"{path} names a run twice: remove it, and resume each run beside it",
    )
    return configs


def parse_methods(words: Sequence[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """The algorithms of a comparison, each with the hyper-parameters that its word names.

    Args:
      words: an algorithm each, or "ALGORITHM:KEY=VALUE,KEY=VALUE".

    Returns:
      The word, which is the label in tables -> its algorithm and hyper-parameters.

    Raises:
      InputError: an unknown algorithm, a word that occurs twice, or values that are none.
    """
    check(bool(words), "no algorithms: name some, see jaxfl list algorithms")
    methods = {}
    for word in words:
        check(
            word not in methods,
            f"{word!r} is named twice: name it once, or give each its own hyper-parameters, as in "
            "pfedgraph:alpha=0.4",
        )
        algorithm, colon, pairs = word.partition(":")
        check(
            "," not in algorithm,
            f"{word!r} is no algorithm: separate algorithms by spaces, as in local fedavg",
        )
        check_name("algorithm", algorithm, ALGORITHMS)
        check(not colon or bool(pairs), f"{word!r}: expected ALGORITHM:KEY=VALUE,KEY=VALUE")
        hyper = parse_hyper(pairs.split(",")) if pairs else {}
        methods[word] = (algorithm, with_none(algorithm, hyper))
    return methods


def hyper_by_algorithm(hyper: dict[str, Any], algorithms: Sequence[str]) -> dict[str, dict]:
    """The hyper-parameters of each algorithm of a comparison.

    Args:
      hyper: by name. "alpha" is for each algorithm that has it, "pfedgraph.alpha" for one
        algorithm, where it wins over "alpha".
      algorithms: of the comparison.

    Returns:
      algorithm -> its hyper-parameters.

    Raises:
      InputError: no algorithm of the comparison has a hyper-parameter of this name.
    """
    parameters = {algorithm: options_of(ALGORITHMS[algorithm]) for algorithm in algorithms}
    common: dict[str, dict] = {algorithm: {} for algorithm in parameters}
    overrides: dict[str, dict] = {algorithm: {} for algorithm in parameters}
    for name, value in hyper.items():
        algorithm, dot, key = name.partition(".")
        if not dot:
            check_name("hyper-parameter", name, set().union(*parameters.values()))
            for one in common:
                if name in parameters[one]:
                    common[one][name] = value
            continue
        check_name("algorithm", algorithm, ALGORITHMS)
        check(
            algorithm in parameters,
            f"hyper-parameter {name!r} is for {algorithm}, which is not compared: leave it out, or "
            f"add {algorithm} to --algorithms",
        )
        check_name(f"hyper-parameter of {algorithm}", key, parameters[algorithm])
        overrides[algorithm][key] = value
    return {
        algorithm: with_none(algorithm, common[algorithm] | overrides[algorithm])
        for algorithm in common
    }


def _read(path: Path, what: str) -> Any:
    try:
        return parse_json(path.read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"cannot read {path} as {what} ({reason}): give the config.json of a run"
        ) from error


def config_from(content: Any, path: Path, kind: type[Config] = Config) -> Config:
    """The config in a JSON value of a file.

    Args:
      content: the value.
      path: of the file, for messages.
      kind: of config; a `ForeignConfig` may have unknown names.

    Raises:
      InputError: not the fields and values of a config.
    """
    check(
        isinstance(content, dict) and isinstance(content.get("algorithm"), str),
        f"{path} is no config: expected a JSON object with at least an algorithm, as in the "
        "config.json of a run",
    )
    types = hints(Config)
    for name in content:
        check_name(f"field in {path}", name, types)
    plugin = read_field(f"plugin in {path}", types["plugin"], content.get("plugin", ()))
    with plugin_hint(plugin):
        values = {
            name: read_field(f"{name} in {path}", types[name], value, known=kind is Config)
            for name, value in content.items()
        }
        return kind(**values)


@contextmanager
def plugin_hint(plugin: Sequence[str]) -> Iterator[None]:
    """Within, the message about an unknown name says which plug-ins a run had.

    Args:
      plugin: their files.
    """
    try:
        yield
    except UnknownName as error:
        if not plugin:
            raise
        options = " ".join(f"--plugin {file}" for file in plugin)
        raise UnknownName(f"{error} (the run had {options}, which may define it)") from error
