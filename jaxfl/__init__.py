"""jaxfl: personalized federated learning on collaboration graphs, in pure JAX."""

from jaxfl import algorithms, data, mesh, models, participation
from jaxfl.evaluate import make_evaluate, summarise
from jaxfl.rounds import make_rounds
from jaxfl.task import classification, regression, sgd

__all__ = [
    "algorithms",
    "classification",
    "data",
    "make_evaluate",
    "make_rounds",
    "mesh",
    "models",
    "participation",
    "regression",
    "sgd",
    "summarise",
]
