"""HetLoRA: one global model, whose adapters have another rank at each client.

each round t, with adapters A [inputs, r] and B [r, outputs] at each layer, and ranks r_i <= r:
  client i:  w_i = local training of F_i from w with the first r_i columns of A and rows of B
  server:    w = sum_i p_i w_i, with zeros in the columns and rows that client i does not have,
             p_i in proportion to |A_i B_i|                                (section 3.2, figure 2)
client i deploys w with the first r_i columns and rows.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.kernels import mix, size_weights
from jaxfl.kernels.products import square_norms
from jaxfl.training.lora import LORA, is_adapter
from jaxfl.training.objectives import data_loss


@method(
    title="HetLoRA",
    paper=Paper(
        authors="Cho, Yae Jee and Liu, Luyang and Xu, Zheng and Fahrezi, Aldi and Joshi, Gauri",
        title="Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models",
        venue="EMNLP",
        year=2024,
        link="https://arxiv.org/abs/2401.06432",
    ),
    place="section 3.2",
    personal="",
    sends="its model",
    defaults="ours",
    advice="mean=products: the mean of what adapters add, in place of that of their factors",
)
def hetlora(
    task: Task,
    *,
    ranks: int | str | tuple[int, ...] = (),
    mean: Literal["norms", "sizes", "products"] = "norms",
) -> Algorithm:
    """One global model for clients that train adapters of different ranks.

    With `mean="sizes"` clients weigh by their numbers of examples, and what they lack counts as
    zeros (padding). With `mean="products"` it is FlexLoRA (Bai et al., 2024,
    https://arxiv.org/abs/2402.11505): the server averages the products A B by numbers of examples,
    and a client gets the nearest ones of its rank. Of each round `metrics` has `product_error`:
    how far the new A B are from the mean of the products, as a share of its norm.

    State: memory = nothing; server = the global model; record = each client's rank.

    Args:
      task: the model, with adapters of `jaxfl.lora`, and its training.
      ranks: of clients 0, 1, ..., and again from the first, as (4, 8, 16), "4+8+16" or 4; at most
        that of the model. (): all have that of the model.
      mean: how the server averages adapters.

    Raises:
      InputError: ranks are no numbers from 1 to the rank of the adapters, or there are none.

    Differs: ranks stay as they are; the paper's clients may cut off columns in training. A message
    has the largest rank, of which `up` and `down` count the client's part.

    Example:
      >>> _, info = one_round(hetlora(task))
      >>> info.weights.shape
      (4, 4)
    """
    ranks = _numbers(ranks)
    shapes = steps.model_shapes(task.problem)
    adapters = _adapters(shapes)
    largest = max((one["a"].shape[1] for one in adapters), default=0)
    check(
        bool(adapters) or not ranks,
        f"ranks of hetlora is {ranks}, and the model has no adapters whose A and B are both "
        "trained: give --lora, or jaxfl.lora",
    )
    check(
        all(1 <= rank <= largest for rank in ranks),
        f"ranks of hetlora is {ranks}, and the adapters have rank {largest}: expected ranks from 1 "
        "to that one",
    )
    in_turn = jnp.array(ranks or (largest,))
    of_a_rank = sum(one["a"].shape[0] + one["b"].shape[1] for one in adapters)
    fit = task.trainer(data_loss(task.problem))

    def rank_of(ids: Array) -> Array:
        return in_turn[ids % in_turn.size]

    def floats(rank: Array) -> Array:
        return tree.size(shapes) - of_a_rank * (largest - rank)

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        clients = jnp.arange(len(train.mask))
        return (), ServerState(task.problem.init(key), rank_of(clients))

    def download(state: ServerState) -> Down:
        return Down(state.server, floats=floats(state.record))

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        start = deploy(memory, down, cohort)
        # Columns and rows of zeros have no gradient, so that training keeps them.
        fitted = fit(stream(key, "fit"), start, None, cohort)
        up = Up(fitted.params, start, floats=floats(rank_of(cohort.ids)))
        return memory, up, steps.report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        # Noise, and whoever does not keep to its rank, fill what the client does not have.
        received = jax.vmap(of_rank)(uploads.received, state.record)
        weights = size_weights(uploads.sizes * uploads.reported)
        if mean == "norms" and adapters:
            squares = sum(square_norms(one["a"], one["b"]) for one in _adapters(received))
            norms = jnp.sqrt(squares) * uploads.reported
            total = norms.sum()
            # Where nobody's B has left zero, sizes decide.
            weights = jnp.where(total > 0, norms / jnp.where(total > 0, total, 1.0), weights)
        if mean == "products":
            model, _ = steps.mean_of_products(uploads._replace(received=received))
        else:
            model = mix(weights, received)
        metrics = {"product_error": product_error(weights, received, model)}
        rows = tree.broadcast(weights, uploads.ids.size)
        return Outcome(ServerState(model, state.record), weights=rows, metrics=metrics)

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return jax.vmap(of_rank, (None, 0))(down.common, rank_of(cohort.ids))

    wire = Wire(init, (Exchange(client, server),), deploy, download)
    return steps.compose(task, wire)


def _numbers(ranks: int | str | tuple[int, ...]) -> tuple[int, ...]:
    """The ranks as numbers."""
    if isinstance(ranks, int):
        return (ranks,)
    if not isinstance(ranks, str):
        return ranks
    try:
        return tuple(int(one) for one in ranks.split("+"))
    except ValueError as error:
        raise InputError(f"ranks of hetlora is {ranks!r:.40}: expected 4+8+16") from error


def _adapters(model: Params) -> list[Params]:
    """The adapters of a model."""
    inside = model.get(LORA, {}) if isinstance(model, dict) else {}
    return [one for one in jax.tree.leaves(inside, is_leaf=is_adapter) if is_adapter(one)]


def of_rank(model: Params, rank: Array) -> Params:
    """A model whose adapters have zeros in the columns of A and the rows of B beyond a rank.

    Example:
      >>> model = {"lora": {"Dense_0": {"a": jnp.ones((1, 2)), "b": jnp.ones((2, 1))}}}
      >>> of_rank(model, jnp.array(1))["lora"]["Dense_0"]["a"].tolist()
      [[1.0, 0.0]]
    """
    if not isinstance(model, dict) or LORA not in model:
        return model

    def cut(part: Params) -> Params:
        if not is_adapter(part):
            return part
        has = jnp.arange(part["b"].shape[0]) < rank
        return {"a": part["a"] * has[None], "b": part["b"] * has[:, None]}

    return {**model, LORA: jax.tree.map(cut, model[LORA], is_leaf=is_adapter)}


def product_error(weights: Float[Array, "m"], received: Params, model: Params) -> Float[Array, ""]:
    """How far the A B of a model are from the mean of the products, as a share of its norm.

    Args:
      weights: of the models that were received.
      received: models [M, ...].
      model: the new one.

    Example:
      >>> a, b = jnp.array([[[1.0]], [[0.0]]]), jnp.array([[[1.0]], [[0.0]]])
      >>> model = {"lora": {"a": jnp.array([[0.5]]), "b": jnp.array([[0.5]])}}
      >>> product_error(jnp.array([0.5, 0.5]), {"lora": {"a": a, "b": b}}, model).item()
      0.5
    """
    error, norm = jnp.zeros(()), jnp.zeros(())
    for many, one in zip(_adapters(received), _adapters(model), strict=True):
        M, inputs, rank = many["a"].shape
        # sum_j p_j A_j B_j is one product of the factors side by side.
        a = jnp.moveaxis(many["a"] * weights[:, None, None], 0, 1).reshape(inputs, M * rank)
        b = many["b"].reshape(M * rank, -1)
        norm += square_norms(a, b)
        both = jnp.concatenate([a, -one["a"]], axis=1), jnp.concatenate([b, one["b"]])
        error += square_norms(*both)
    return jnp.sqrt(error / jnp.where(norm > 0, norm, 1.0))
