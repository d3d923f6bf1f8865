"""The setting of one or several runs in words: the heading of tables and the title of pictures."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from jaxfl.experiment.config import Config, DataOptions
from jaxfl.experiment.config.fields import option
from jaxfl.experiment.store.records import Runs

# Options that say how a run was made and not what it is.
UNIMPORTANT = {
    "algorithm",
    "checkpoint_every",
    "chunk",
    "data_dir",
    "devices",
    "eval_every",
    "fail_on_divergence",
    "format",
    "hyper",
    "keep",
    "label",
    "store",
}
# Options on which clients and scores depend: runs that differ in one cannot be compared.
SAME_CLIENTS = {one.name for one in fields(DataOptions)} | {
    "attack",
    "attack_ratio",
    "attack_seed",
    "eval_on",
    "malicious",
    "seeds",
    "unseen",
}
Configs = Sequence[Config | None]  # None where the config of a run is unknown


def setting_line(configs: Configs) -> str:
    """The setting that all runs share, and the options in which they differ; "" if unknown."""
    known = [config for config in configs if config is not None]
    if not known:
        return ""
    differing = _differing(known)
    first = known[0]
    shared = {
        one.name: getattr(first, one.name) for one in fields(Config) if one.name not in differing
    }
    parts = [part for part in (_data(shared), _clients(shared), _work(shared)) if part]
    if differing:
        parts.append(f"the runs differ in {' '.join(option(name) for name in differing)}")
    return "; ".join(parts)


def setting_of(runs: Runs) -> str:
    """The `setting_line` of runs."""
    return setting_line([run.config for run in runs.values()])


def data_line(options: DataOptions) -> str:
    """The data and the clients in words."""
    shared = {one.name: getattr(options, one.name) for one in fields(DataOptions)}
    return "; ".join(part for part in (_data(shared), _clients(shared)) if part)


def differing_options(runs: Runs) -> list[str]:
    """The options that are not the same in all runs; those whose config is unknown are left out."""
    return _differing([run.config for run in runs.values()])


def have_same_clients(runs: Runs) -> bool:
    """Whether the scores of the runs can be compared; unknown configs are taken to fit."""
    return not SAME_CLIENTS.intersection(differing_options(runs))


def _differing(configs: Configs) -> list[str]:
    known = [config for config in configs if config is not None]
    names = [one.name for one in fields(Config) if one.name not in UNIMPORTANT]
    return [name for name in names if len({repr(getattr(one, name)) for one in known}) > 1]


def _data(shared: dict[str, Any]) -> str:
    partition = shared.get("partition")
    details = {
        "classes_per_client": {
            "pathological": "{} labels each",
            "unbalanced_pathological": "{} labels each",
            "labels": "{} labels each",
            "shards": "{} shards each",
        },
        "beta": dict.fromkeys(("dirichlet", "niid_bench_dirichlet", "quantity"), "beta {}"),
        "topology": {"nodes": "{} nodes"},
    }
    for name, texts in details.items():
        if partition in texts and name in shared:
            partition = f"{partition} ({texts[partition].format(shared[name])})"
    concept = shared.get("concept")
    return ", ".join(part for part in (shared.get("dataset"), partition, concept) if part)


def _clients(shared: dict[str, Any]) -> str:
    clients = shared.get("clients")
    parts = [f"{clients} clients" if clients is not None else ""]
    if shared.get("max_examples") is not None:
        parts.append(f"at most {shared['max_examples']} examples each")
    if shared.get("participation", 1.0) < 1:
        parts.append(f"{100 * shared['participation']:g} % in each round")
    if shared.get("speeds") is not None:
        parts.append(f"speeds {shared['speeds']:g}")
    if shared.get("arrivals") == "asynchronous":
        parts.append("asynchronous arrivals")
    if shared.get("unseen", 0.0) > 0:
        parts.append(f"{100 * shared['unseen']:g} % unseen")
    if shared.get("stragglers", 0.0) > 0:
        lost = ", whose uploads are lost" if shared.get("drop_stragglers") else ""
        parts.append(f"{100 * shared['stragglers']:g} % stragglers{lost}")
    if shared.get("work_file") is not None:
        parts.append("given work of each client")
    if shared.get("drop", 0.0) > 0:
        parts.append(f"{100 * shared['drop']:g} % of the uploads lost")
    if shared.get("attack") is not None:
        parts.append(f"attack {shared['attack']}")
    return ", ".join(part for part in parts if part)


def _work(shared: dict[str, Any]) -> str:
    parts = []
    if "rounds" in shared:
        parts.append(_count(shared["rounds"], "round"))
    if shared.get("local_steps") is not None:
        parts.append(_count(shared["local_steps"], "local step"))
    if shared.get("local_epochs") is not None:
        parts.append(_count(shared["local_epochs"], "local epoch"))
    if shared.get("seeds", 1) > 1:
        parts.append(f"{shared['seeds']} seeds")
    elif "seed" in shared and "seeds" in shared:
        parts.append(f"seed {shared['seed']}")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
