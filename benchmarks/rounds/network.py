"""A round's messages between thousands of clients: lists of neighbours beside a product."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from benchmarks.measure import best_ms
from jaxfl.algorithms.steps.delivery import Past
from jaxfl.core.messages import ServerState, Uploads
from jaxfl.graphs.pairs import matrix_of, random_regular_pairs
from jaxfl.kernels.gossip import metropolis
from jaxfl.kernels.mixing import mix
from jaxfl.simulation import mesh

NEIGHBOURS = 4
SIZE = 7_850  # parameters of a linear model of MNIST
CONDITIONS = {"edge_loss": 0.1, "edge_delay": 1, "edge_part": 0.5}


class Cost(NamedTuple):
    """What a step takes."""

    # of the best of several steps
    ms: float
    # MiB beside what goes in, by the compiler's plan
    memory: float


def step_cost(clients: int, size: int, repeats: int, **options: Any) -> Cost:
    """The step of gossip's network: who hears whom, the weights and the mixtures.

    Args:
      clients: M.
      size: D, parameters of a model.
      repeats: of the step; the best counts.
      options: of `gossip`.
    """
    model = jaxfl.Model(lambda key: jnp.zeros(size), lambda params, x: x[:, 0])
    algorithm = jaxfl.algorithms.gossip(jaxfl.regression(model, np.zeros(1)), **options)
    x = models(clients, size)
    everybody = jnp.ones(clients, bool)
    uploads = Uploads(jnp.arange(clients), jnp.ones(clients, int), everybody, x, x)
    record = ()
    if "edge_delay" in options:
        record = Past(x[:, None], jnp.ones(clients, jnp.int32))
    state = ServerState(jnp.zeros((), jnp.int32), record)
    step = algorithm.wire.exchanges[0].server
    key = jax.random.key(0)
    return cost(step, (key, state, uploads), repeats)


def product_cost(clients: int, size: int, repeats: int) -> Cost:
    """The product of the same weights, as a matrix, with the models, and nothing else."""
    pairs = random_regular_pairs(clients, NEIGHBOURS, 0)
    weights = metropolis(jnp.asarray(matrix_of(pairs, clients), jnp.float32))
    return cost(mix, (weights, models(clients, size)), repeats)


def cost(function: Callable, arguments: tuple, repeats: int) -> Cost:
    """What a function takes that is compiled for these arguments."""
    compiled = jax.jit(function).lower(*arguments).compile()
    plan = compiled.memory_analysis()
    assert plan is not None
    memory = plan.temp_size_in_bytes + plan.output_size_in_bytes
    return Cost(best_ms(lambda: compiled(*arguments), repeats), memory / 2**20)


def models(clients: int, size: int) -> jax.Array:
    """Random models [M, D]."""
    return jnp.asarray(np.random.default_rng(0).normal(size=(clients, size)), jnp.float32)


def section(
    sizes: tuple[int, ...] = (100, 1_000, 10_000), size: int = SIZE, repeats: int = 3
) -> str:
    """The table and the lines around it."""
    rows = []
    for clients in sizes:
        # With several devices in use, each would compute all of it.
        with jax.set_mesh(mesh.make_mesh(1)):
            lists = {"graph": "random_regular", "degree": NEIGHBOURS}
            few = step_cost(clients, size, repeats, **lists)
            late = step_cost(clients, size, repeats, **lists, **CONDITIONS)
            dense = product_cost(clients, size, repeats)
        rows.append(
            f"| {clients:,} | {few.ms:,.1f} | {dense.ms:,.1f} | {dense.ms / few.ms:.1f} | "
            f"{late.ms:,.1f} | {few.memory:,.0f} | {dense.memory:,.0f} | {late.memory:,.0f} |"
        )
    return TEXT.format(rows="\n".join(rows), size=size)


TEXT = """## A network of thousands of clients

The step of `gossip` in which clients mix the models of four neighbours in a random regular graph,
for models of {size:,} parameters on one device: by lists of neighbours, and beside it the product
of the same weights, as a matrix, with the models alone. "Lossy": a tenth of the messages is lost,
all take a round, and half of their numbers are sent (`edge_loss=0.1 edge_delay=1 edge_part=0.5`).
Memory is that of the compiler's plan beside what goes in; the models that come out are a part of
it, and the matrix of weights is not.

| clients | lists, ms | product, ms | times | lossy, ms | lists, MiB | product, MiB | lossy, MiB |
|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}

Other processors: [notebook](notebook.md#adapters-and-networks-on-another-processor).
"""
