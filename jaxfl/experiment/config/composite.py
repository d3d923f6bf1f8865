"""How fields are typed that belong to another option: `--attack mimic:ratio=0.3,seed=1`.

A config is flat: this command line sets the fields `attack`, `attack_ratio` and `attack_seed`.
"""

import functools
import re
from collections.abc import Mapping

# Option -> key behind its colon -> field. Behind `--keep` stand such words alone.
FIELDS = {
    "partition": {
        "classes": "classes_per_client",
        "beta": "beta",
        "nodes": "topology",
        "least": "smallest",
    },
    "concept": {"groups": "concept_groups", "noise": "feature_noise"},
    "model": {"side": "side"},
    "pretrained": {"trainable": "trainable"},
    "lora": {"layers": "lora_layers"},
    "optimizer": {"momentum": "momentum", "weight_decay": "weight_decay"},
    "schedule": {"decay": "decay", "every": "decay_every"},
    "stragglers": {"least": "least_work", "lost": "drop_stragglers"},
    "attack": {
        "ratio": "attack_ratio",
        "seed": "attack_seed",
        "clients": "malicious",
        "scale": "attack_scale",
    },
    "clip": {"noise": "noise", "delta": "delta"},
    "example_clip": {"noise": "example_noise", "delta": "delta"},
    "compress": {"fraction": "top_k"},
    "speeds": {"seed": "speed_seed", "arrivals": "arrivals"},
    "durations": {"arrivals": "arrivals"},
    "keep": {
        "models": "keep_models",
        "weights": "keep_weights",
        "checkpoints": "checkpoint_every",
        "newest": "keep_checkpoints",
    },
    "join": {"processes": "processes", "process": "process", "timeout": "join_timeout"},
}
KEEP = "keep"
# Numbers of a list stand between these, as a comma begins the next key.
BETWEEN = "+"
WORD = re.compile(r"(?P<value>.*?):(?P<pairs>\w+=.*)", re.DOTALL)


def owners(field: str) -> list[tuple[str, str]]:
    """The options behind which a field is typed, each with the key there.

    Example:
      >>> owners("delta")
      [('clip', 'delta'), ('example_clip', 'delta')]
    """
    return _owners().get(field, [])


@functools.cache
def _owners() -> dict[str, list[tuple[str, str]]]:
    """The same, of all fields that are typed so."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, keys in FIELDS.items():
        for key, field in keys.items():
            found.setdefault(field, []).append((name, key))
    return found


def option(field: str) -> str:
    """What a field is called on the command line.

    Example:
      >>> option("local_steps"), option("attack_ratio"), option("keep_models")
      ('--local-steps', 'ratio of --attack', '--keep models')
    """
    for name, key in owners(field)[:1]:
        return f"--keep {key}" if name == KEEP else f"{key} of {dashed(name)}"
    return dashed(field)


def dashed(name: str) -> str:
    """An option of this name: "--local-steps" of "local_steps"."""
    return "--" + name.replace("_", "-")


def divided(word: str) -> tuple[str, list[str]]:
    """The value of an option and the pairs behind its colon.

    Example:
      >>> divided("mimic:ratio=.3,seed=1"), divided("localhost:8476"), divided(":beta=.1")
      (('mimic', ['ratio=.3', 'seed=1']), ('localhost:8476', []), ('', ['beta=.1']))
    """
    found = WORD.fullmatch(word)
    if found is None:
        return word, []
    return found["value"], re.split(r",(?=\w+=)", found["pairs"])


def typed(values: Mapping[str, str]) -> dict[str, str]:
    """Fields and their values as they are typed.

    Args:
      values: field -> its value in words.

    Returns:
      Option -> what stands behind it.

    Example:
      >>> typed({"attack": "mimic", "attack_ratio": "0.3", "lr": "0.1"})
      {'--attack': 'mimic:ratio=0.3', '--lr': '0.1'}
      >>> typed({"beta": "0.1", "keep_models": "none", "keep_weights": "last"})
      {'--partition': ':beta=0.1', '--keep': 'models=none weights=last'}
    """
    options: dict[str, str] = {}
    pairs: dict[str, list[str]] = {}
    for field, value in values.items():
        places = owners(field)
        if not places:
            options[field] = value
            continue
        name, key = next((one for one in places if one[0] in values), places[0])
        options.setdefault(name, values.get(name, ""))
        pairs.setdefault(name, []).append(f"{key}={value.replace(' ', BETWEEN)}")
    for name, behind in pairs.items():
        options[name] = " ".join(behind) if name == KEEP else f"{options[name]}:{','.join(behind)}"
    return {dashed(name): value for name, value in options.items()}
