"""The examples in the docstrings of the public names: every name has one, and all hold."""

import importlib
import inspect
import shutil

import pytest
from examples import check_example, four_clients, one_round, script
from toys import shallow

from jaxfl.experiment import Config, execute

reference = script("reference")
# Names without an example, and why they need none.
PROCESS = "it acts on the whole process, before JAX starts or where several processes run"
MESSAGES = "it acts on messages of nodes; tests/serve and docs/guides/deployment.md show it"
SERVED = {
    "client": ("ImportedApp", "memories_of", "partition_of", "scores", "work"),
    "memory": ("shelf_in_context",),
    "nodes": ("meet",),
    "orders": ("last_reply", "message_to"),
    "replies": ("arrivals", "content_of", "score_log"),
}
EXEMPT = {
    f"jaxfl.serve.{module}.{name}": MESSAGES for module, names in SERVED.items() for name in names
}
EXEMPT |= {
    "jaxfl.core.first_lines.exit_on_interrupt": "tests/core/test_start.py shows it on a process",
    "jaxfl.core.types.take_offer": "`accept_validated` shows what an `Accept` returns",
    "jaxfl.core.facts.Facts": "the example of `facts_of` shows it",
    "jaxfl.experiment.Tracking": "it needs the library of a tracker; docs/tracking.md shows it",
    "jaxfl.experiment.resume_comparison": "as `resume`, on the directory that `compare` writes",
    "jaxfl.simulation.evaluate.make_evaluate_cohort": "`make_evaluate_models` has an example of it",
    "jaxfl.simulation.processes.check_backend": PROCESS,
    "jaxfl.simulation.mesh.connect": PROCESS,
    "jaxfl.simulation.processes.join_processes": PROCESS,
    "jaxfl.simulation.processes.keep_programs": PROCESS,
    "jaxfl.simulation.processes.prepare_host": PROCESS,
    "jaxfl.uplink.Compression": "the examples of `quantise` and `top_k` show it",
}


def is_form(thing):
    """Whether a class says only what data or functions look like, or that something went wrong.

    The examples of the functions that take, return or raise it show it.
    """
    return inspect.isclass(thing) and (
        issubclass(thing, tuple | dict | Exception) or getattr(thing, "_is_protocol", False)
    )


def has_example(thing):
    return ">>>" in (inspect.getdoc(thing) or "")


def public_things():
    """The public functions and classes of jaxfl by name; a constant has no docstring."""
    found = {}
    for module_name in reference.public_modules():
        module = importlib.import_module(module_name)
        for name in reference.public_names(module):
            thing = getattr(module, name)
            own = getattr(thing, "__module__", "").startswith("jaxfl")
            if own and (inspect.isfunction(thing) or inspect.isclass(thing)):
                found[f"{module_name}.{name}"] = thing
    return found


THINGS = public_things()
SHOWN = sorted(
    name
    for name, thing in THINGS.items()
    if name not in EXEMPT and (has_example(thing) or not is_form(thing))
)
# The names that examples see, beside those of their page and their module.
GIVEN = {"task": shallow(), "cohort": four_clients(), "one_round": one_round}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run that examples find as `runs/digits`."""
    out = tmp_path_factory.mktemp("examples") / "digits"
    config = Config(algorithm="fedavg", clients=5, rounds=1, local_steps=5, checkpoint_every=1)
    execute(config, out)
    return out


@pytest.mark.long(every=24)
@pytest.mark.parametrize("name", SHOWN)
def test_every_public_name_has_an_example_that_holds(name, tmp_path, monkeypatch, request):
    """Files of an example lie in a folder of its own, with a finished run if it names one."""
    thing = THINGS[name]
    monkeypatch.chdir(tmp_path)
    if '"runs/digits' in inspect.getdoc(thing):
        shutil.copytree(request.getfixturevalue("finished_run"), tmp_path / "runs" / "digits")
    module = importlib.import_module(name.rpartition(".")[0])
    check_example(thing, **vars(module) | GIVEN)


def test_only_public_names_without_an_example_are_exempt():
    assert not EXEMPT.keys() - THINGS.keys()
    assert [name for name in EXEMPT if has_example(THINGS[name])] == []
