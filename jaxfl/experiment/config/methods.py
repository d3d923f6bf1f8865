"""The methods of a comparison as text: algorithms, labels, and hyper-parameters for each."""

from collections.abc import Sequence
from typing import Any

from jaxfl.algorithms import ALGORITHMS
from jaxfl.errors import check, check_name
from jaxfl.experiment.config.text import parse_hyper
from jaxfl.options import parameters


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
        algorithm, colon, own = word.partition(":")
        check(
            "," not in algorithm,
            f"{word!r} is no algorithm: separate algorithms by spaces, as in local fedavg",
        )
        check_name("algorithm", algorithm, ALGORITHMS)
        check(not colon or bool(own), f"{word!r}: expected ALGORITHM:KEY=VALUE,KEY=VALUE")
        methods[word] = (algorithm, parse_hyper(own.split(",")) if own else {})
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
    known = {algorithm: parameters(ALGORITHMS[algorithm]) for algorithm in algorithms}
    found: dict[str, dict] = {algorithm: {} for algorithm in known}
    own: dict[str, dict] = {algorithm: {} for algorithm in known}
    for name, value in hyper.items():
        algorithm, dot, key = name.partition(".")
        if not dot:
            check_name("hyper-parameter", name, set().union(*known.values()))
            for one in found:
                if name in known[one]:
                    found[one][name] = value
            continue
        check_name("algorithm", algorithm, ALGORITHMS)
        check(
            algorithm in known,
            f"hyper-parameter {name!r} is for {algorithm}, which is not compared: leave it out, or "
            f"add {algorithm} to --algorithms",
        )
        check_name(f"hyper-parameter of {algorithm}", key, known[algorithm])
        own[algorithm][key] = value
    return {algorithm: found[algorithm] | own[algorithm] for algorithm in found}
