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
ERROR = "an error or a warning; the examples of functions that raise it show its message"
RESULT = "a tuple that functions return; their examples show its fields"
STATE = "a part of a method's state; the examples of functions that make it show its fields"
PROTOCOL = "a type of functions; its first line is its signature"
PROCESS = "it acts on the whole process, before JAX starts or where several processes run"
EXEMPT = {
    "jaxfl.core.errors.InputError": ERROR,
    "jaxfl.core.errors.Diverged": ERROR,
    "jaxfl.core.errors.RunWarning": ERROR,
    "jaxfl.data.Source": RESULT,
    "jaxfl.data.Ridge": RESULT,
    "jaxfl.uplink.Compression": RESULT,
    "jaxfl.algorithms.steps.uploads.Round": RESULT,
    "jaxfl.core.facts.Facts": RESULT,
    "jaxfl.core.options.Option": RESULT,
    "jaxfl.simulation.evaluate.Scores": RESULT,
    "jaxfl.simulation.evaluate.Evaluation": RESULT,
    "jaxfl.simulation.scoring.Scored": RESULT,
    "jaxfl.kernels.cluster.Clusters": RESULT,
    "jaxfl.kernels.coalitions.Coalitions": RESULT,
    "jaxfl.kernels.attention.Attention": STATE,
    "jaxfl.kernels.coupling.Learner": STATE,
    "jaxfl.kernels.gaussian.Gaussian": STATE,
    "jaxfl.kernels.hypernet.Hypernet": STATE,
    "jaxfl.graphs.topology.Network": RESULT,
    "jaxfl.algorithms.steps.personal.Personal": STATE,
    "jaxfl.algorithms.steps.attraction.Client": STATE,
    "jaxfl.algorithms.steps.layerwise.Mixed": RESULT,
    "jaxfl.algorithms.steps.staleness.Download": STATE,
    "jaxfl.algorithms.steps.admm.Client": STATE,
    "jaxfl.algorithms.steps.divergence.Divergences": RESULT,
    "jaxfl.algorithms.steps.divergence.Examples": RESULT,
    "jaxfl.algorithms.steps.admm.Primal": RESULT,
    "jaxfl.simulation.rounds.Rounds": PROTOCOL,
    "jaxfl.training.flax_model.Functions": RESULT,
    "jaxfl.simulation.mesh.join_processes": PROCESS,
    "jaxfl.simulation.mesh.check_backend": PROCESS,
    "jaxfl.simulation.mesh.prepare_host": PROCESS,
    "jaxfl.simulation.mesh.keep_programs": PROCESS,
    "jaxfl.experiment.Tracking": "it needs the library of a tracker; docs/tracking.md shows it",
    "jaxfl.simulation.evaluate.make_evaluate_cohort": "`make_evaluate_models` has an example of it",
    "jaxfl.experiment.resume_comparison": "as `resume`, on the directory that `compare` writes",
}
TYPES = "docs/concepts.md and the examples of `make_rounds` and `federate` show it"
PLAIN = ("Dataset", "Pool", "Federation", "Cohort", "State", "Info", "Problem", "Task", "Algorithm")
FUNCTIONS = ("Objective", "Fit", "Gradient", "Evaluate", "Uplink", "Upload", "Accept", "KeepEdges")
EXEMPT |= {f"jaxfl.core.types.{name}": TYPES for name in PLAIN}
EXEMPT |= {f"jaxfl.core.types.{name}": PROTOCOL for name in FUNCTIONS}
EXEMPT |= {
    f"jaxfl.simulation.evaluate.Evaluate{of}": PROTOCOL for of in ("State", "Models", "Cohort")
}
EXEMPT |= {"jaxfl.training.task.Training": "the examples of `classification` show it"}
EXEMPT |= {f"jaxfl.core.types.{name}": RESULT for name in ("Fitted", "Gradients")}
EXEMPT |= {"jaxfl.core.types.take_offer": "`accept_validated` shows what an `Accept` returns"}


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
# The names that examples see, beside those of their page and their module.
GIVEN = {"task": shallow(), "cohort": four_clients(), "one_round": one_round}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run that examples find as `runs/digits`."""
    out = tmp_path_factory.mktemp("examples") / "digits"
    config = Config(algorithm="fedavg", clients=5, rounds=1, local_steps=5, checkpoint_every=1)
    execute(config, out)
    return out


@pytest.mark.long(every=4)
@pytest.mark.parametrize("name", sorted(THINGS.keys() - EXEMPT.keys()))
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
    shown = [name for name in EXEMPT if ">>>" in (inspect.getdoc(THINGS[name]) or "")]
    assert shown == []
