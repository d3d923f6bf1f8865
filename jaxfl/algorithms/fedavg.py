"""FedAvg: the mean of the clients' models."""

from typing import Literal

from jaxfl.algorithms.steps.server import mean_by_size, mean_of_products
from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.types import Algorithm, Task


@method(
    title="FedAvg",
    paper=papers.FEDAVG,
    place="Algorithm 1",
    personal="",
    sends="its model",
    defaults="the paper",
    turn_first="one model cannot fit clients that differ: take fedavg_ft, or a method with a "
    "personal part",
)
def fedavg(task: Task, *, adapters: Literal["factors", "products"] = "factors") -> Algorithm:
    """One global model: the mean of the clients' models, weighted by their numbers of examples.

    With `adapters="products"` the low-rank adapters of `jaxfl.lora` are averaged as what they add
    to the weights, A B, and the mean is cut to their rank again: FlexLoRA (Bai et al., 2024,
    https://arxiv.org/abs/2402.11505, section 3), where all clients have one rank.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      adapters: what is averaged of low-rank adapters: their two "factors", each alone, or their
        "products". A model without adapters has the same mean.

    Example:
      >>> state = initial_state(fedavg(task))
      >>> state.clients.memory
      ()
    """
    products = adapters == "products"
    return global_model(task, aggregate=mean_of_products if products else mean_by_size)
