"""Kernels that make, compare or move single models: of clients, networks and optimisers."""

import jax
import jax.numpy as jnp
import optax
from claims import KEY, Kernel, each

from jaxfl.algorithms.steps import admm
from jaxfl.core.types import Cohort, Dataset
from jaxfl.kernels import (
    attention,
    contrastive,
    coupling,
    gaussian,
    hypernet,
    neighbours,
    products,
    server_optimizer,
)
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.gaussian import Gaussian
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.sketch import sketches


def fitted(c):
    """Argmin of |w - x|^2 / 2 plus what ADMM adds; each client has its own x, one example."""
    ones = jnp.ones((c.ids.size, 1), bool)
    data = Dataset(c.models[:, None], jnp.zeros(ones.shape), ones)

    def loss(w, batch, anchor, key):
        value = jnp.sum(jnp.square(w - batch.x[0])) / 2
        return value, value

    side = admm.primal(loss, lambda objective: None, 0.5, 0.1, exact=True)
    client = side.enlist(jnp.zeros(c.models.shape[1]), data, jnp.zeros_like(c.ids), 1)
    return side.solve(KEY, client, -c.models, Cohort(c.ids, data, data)).params


def misaligned(kind):
    return each(lambda x: misalignment({"w": x}, {"w": x[::-1] / 2}, 0.5, kind))


def started(c):
    return attention.init_attention(KEY, c.models[0], "gat", 2, 3).receiver


def attend(score):
    def weights(c):
        learned = attention.init_attention(KEY, c.models[0], score, 2, 3)
        moved = jax.tree.map(lambda x: x + 0.3, learned)
        return attention.attention_weights(moved, attention.layer_norm(c.models), score)

    return weights


def contrasted(c):
    return contrastive.contrast(c.models, c.models[:, ::-1], -c.models, 0.5)


def learned(c):
    return coupling.update(coupling.init("learned", 2), c.models.sum(), 0.1).theta


def made(x):
    net = hypernet.init_hypernet(KEY, jnp.zeros(3), x.size, 4, 1)
    return hypernet.generate(net._replace(kernel=jnp.linspace(-1, 1, 12).reshape(4, 3)), x)


def contributed(x):
    net = hypernet.init_weight_net(KEY, ["layer"], 3, x.size, 4, 2)
    return hypernet.contributions(net, x)["layer"]


def labels(query, stored, labels, mask):
    return neighbours.neighbour_labels(query, stored, labels % 3, mask, 3, 2, 1.0)


def labels_near(c):  # clients
    four = jnp.arange(4)
    return labels(c.models, jnp.outer(four, jnp.ones(c.models.shape[1])), four, four < 3)


def labels_among(c):  # clients
    return labels(jnp.eye(2, c.models.shape[1]), c.models, c.ids, c.reported)


def served(optimizer):
    def step(c):
        model = jnp.zeros(c.models.shape[1])
        return server_optimizer.optimizer_step(
            optimizer, optimizer.init(model), model, mix(size_weights(c.sizes), c.models)
        )[0]

    return step


def multiplied(c):
    """Products of two factors of full rank, of which nothing is cut."""
    factors = jax.vmap(jnp.diag)(c.models)
    first, second = products.mix_products(jnp.eye(c.ids.size), factors, factors)
    return jnp.matmul(first, second, precision="highest")


OWN = "twins own_scale"
POSITIVE = "twins nonnegative"
TABLE = [
    Kernel("admm.primal", fitted, "rows", "twins", 1),
    Kernel(
        "admm.augmented",
        each(lambda x: admm.augmented(x, x / 2, x[::-1], 0.1, 0.5)),
        "rows",
        "twins",
        2,
        15,
    ),
    Kernel("admm.message", each(lambda x: admm.message(x, x[::-1], 0.5)), "rows", "twins", 1),
    Kernel("admm.dual_rate", lambda c: jnp.asarray(admm.dual_rate(2.0, 0.5, True)), "none"),
    Kernel("admm.ascend", each(lambda x: admm.ascend(x, x / 2, x[::-1], 0.5)), "rows", "twins", 1),
    Kernel("alignment.misalignment: cosine", misaligned("cosine"), "rows", "twins", decades=15),
    Kernel("alignment.misalignment: approx", misaligned("approx"), "rows", "twins", decades=15),
    Kernel("alignment.misalignment: inner", misaligned("inner"), "rows", "twins", 2, 15),
    Kernel("alignment.misalignment: l2", misaligned("l2"), "rows", POSITIVE, 2, 15),
    Kernel("alignment.misalignment: l1", misaligned("l1"), "rows", POSITIVE, 1, 15),
    Kernel("attention.layer_norm", lambda c: attention.layer_norm(c.models), "rows", OWN),
    Kernel(
        "attention.layer_norm: unit",
        lambda c: attention.layer_norm(c.models, unit=True),
        "rows",
        OWN,
    ),
    Kernel("attention.init_attention", started, "none"),
    Kernel("attention.attention_weights: gat", attend("gat"), "pairs", "simplex " + OWN),
    Kernel("attention.attention_weights: gatv2", attend("gatv2"), "pairs", "simplex " + OWN),
    Kernel("attention.attention_weights: dot", attend("dot"), "pairs", "simplex " + OWN),
    Kernel("contrastive.contrast", contrasted, "rows", POSITIVE, decades=8),
    Kernel("coupling.init", lambda c: coupling.init("learned_pairs", 2).theta, "none", "symmetric"),
    Kernel(
        "coupling.strength",
        lambda c: coupling.strength(coupling.init("learned", 2)),
        "none",
        "nonnegative",
    ),
    Kernel("coupling.update", learned, "none", "general"),
    Kernel(
        "coupling.mean",
        lambda c: coupling.mean(jnp.abs(c.models).max(), 2),
        "none",
        "nonnegative",
        1,
    ),
    Kernel("gaussian.deviation", each(gaussian.deviation), "rows", POSITIVE),
    Kernel("gaussian.draw", each(lambda x: gaussian.draw(KEY, Gaussian(x, x))), "rows", "twins"),
    Kernel(
        "gaussian.divergence",
        each(lambda x: gaussian.divergence(Gaussian(x, x), Gaussian(-x, -x))),
        "rows",
        POSITIVE,
        None,
        12,
    ),
    Kernel(
        "hypernet.init_hypernet",
        lambda c: hypernet.init_hypernet(KEY, c.models[0], 3, 4, 1).kernel,
        "none",
    ),
    Kernel("hypernet.generate", each(made), "rows", "twins", 1),
    Kernel(
        "hypernet.init_weight_net",
        lambda c: hypernet.init_weight_net(KEY, ["layer"], c.ids.size, 2, 4, 1).kernel["layer"],
        "none",
        "nonnegative",
    ),
    Kernel("hypernet.contributions", each(contributed), "rows", POSITIVE, 1),
    Kernel(
        "neighbours.neighbour_labels: query",
        labels_near,
        "rows",
        "simplex_or_zero twins",
        decades=12,
    ),
    Kernel(
        "neighbours.neighbour_labels: stored",
        labels_among,
        "none",
        "simplex_or_zero general",
        decades=12,
    ),
    Kernel("server_optimizer.optimizer_step: sgd", served(optax.sgd(1.0)), "none", "", 1),
    Kernel(
        "server_optimizer.optimizer_step: adam",
        served(optax.adam(0.1)),
        "none",
        "general",
        decades=15,
    ),
    Kernel("sketch.sketches", lambda c: sketches(KEY, c.models, 5), "rows", "twins", 1),
    Kernel(
        "products.square_norms",
        lambda c: products.square_norms(c.models[:, :, None], c.models[:, None]),
        "rows",
        "nonnegative twins",
        4,
        9,
    ),
    Kernel("products.mix_products", multiplied, "rows", "twins", 2, 15),
]
