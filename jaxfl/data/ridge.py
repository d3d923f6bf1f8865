"""Synthetic ridge regression of clients in clusters, spread over servers: GFedMtl's setting."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.types import Dataset, Federation
from jaxfl.graphs import topology
from jaxfl.graphs.topology import check_graph


class Ridge(NamedTuple):
    """A federation and the models behind it."""

    federation: Federation  # x [C, n, D], y [C, n]
    server: Array  # [C] the server of each client
    cluster: Array  # [C] the cluster of each client
    adjacency: Array  # [S, S] of the servers
    truth: Array  # [Q, D] the models that generated the data
    optimum: Array  # [Q, D] least squares on each cluster's pooled test data, w* in (19)


@checked
def ridge(
    seed: int,
    *,
    servers: int = 10,
    clients_per_server: int = 15,
    clusters: int = 3,
    dim: int = 60,
    samples: tuple[int, int] = (1, 9),
    held_out: tuple[int, int] | None = None,
    sigma: float = 0.1,
    noise: tuple[float, float] = (0.1, 1.0),
    concentration: float = 1.0,
    graph: Literal["erdos_renyi", "ring", "alone"] | Shaped[np.ndarray, "s s"] = "erdos_renyi",
    degree: float = 3.0,
) -> Ridge:
    """Clusters of similar linear models; each client has a few noisy samples (GFedMtl, section IV).

    The model of cluster q is w_q = (1 + sigma_q) w_0 with sigma_q ~ U(-sigma, sigma). Client k of
    cluster q draws x ~ N(0, I) and y = x'w_q + N(0, eta_k) with eta_k ~ U(noise), so that the
    clients of a cluster differ.

    Args:
      seed: of all random numbers. Federations of seeds 0, 1, ... have the same shapes and can be
        stacked.
      servers: S; client k belongs to server k // clients_per_server.
      clients_per_server: number of clients at each server.
      clusters: Q.
      dim: D, the number of parameters of a model.
      samples: fewest and most training examples of a client, uniform.
      held_out: the same for validation and for test examples; as `samples` if None.
      sigma: relative distance of the clusters' models from w_0.
      noise: smallest and largest variance eta_k of a client's noise.
      concentration: of the Dirichlet distribution of clusters at each server. If it is small, most
        servers lack some clusters.
      graph: of the servers, by its name in `topology` or as a matrix.
      degree: mean number of neighbours, for "erdos_renyi".

    Raises:
      InputError: a range is empty, or a cluster has fewer test examples than `dim`, so that its
        optimum is not determined.

    Differs: the paper does not give the distributions of x, w_0 and eta_k, the graph, the mix of
    clusters or the size of the test data, and it has no validation data.

    Example:
      >>> data = ridge(0, servers=4, clients_per_server=5, clusters=2, dim=3)
      >>> data.federation.train.x.shape, data.truth.shape, data.adjacency.shape
      ((20, 9, 3), (2, 3), (4, 4))
    """
    held_out = held_out or samples
    for name, (low, high) in (("samples", samples), ("held_out", held_out)):
        check(1 <= low <= high, f"{name} is {low} to {high}: expected a range from 1 up")
    check(
        0 <= noise[0] <= noise[1],
        f"noise is {noise[0]} to {noise[1]}: expected a range of variances",
    )
    rng = np.random.default_rng(seed)
    if isinstance(graph, str):
        options = {"degree": degree, "seed": seed} if graph == "erdos_renyi" else {}
        adjacency = topology.TOPOLOGIES[graph](servers, **options)
    else:
        adjacency = graph
    check_graph(adjacency, servers)

    clients = servers * clients_per_server
    server = np.repeat(np.arange(servers), clients_per_server)
    mix = rng.dirichlet(np.full(clusters, concentration), size=servers)
    cluster = np.concatenate([rng.choice(clusters, clients_per_server, p=p) for p in mix])
    base = rng.normal(size=dim)
    truth = (1 + rng.uniform(-sigma, sigma, size=(clusters, 1))) * base
    deviation = np.sqrt(rng.uniform(*noise, size=clients))

    def draw(sizes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        low, high = sizes
        mask = np.arange(high) < rng.integers(low, high + 1, size=(clients, 1))  # [C, n]
        x = rng.normal(size=(clients, high, dim))
        y = np.einsum("cnd,cd->cn", x, truth[cluster]) + deviation[:, None] * rng.normal(
            size=(clients, high)
        )
        return x * mask[..., None], y * mask, mask

    train, val, test = draw(samples), draw(held_out), draw(held_out)
    optimum = np.zeros_like(truth)
    for q in range(clusters):
        x, y, mask = (array[cluster == q] for array in test)
        count = np.count_nonzero(mask)
        check(
            not len(x) or count >= dim,
            f"cluster {q} has {count} test examples for {dim} unknowns: raise held_out, "
            "clients_per_server or concentration, or take another seed",
        )
        optimum[q] = np.linalg.lstsq(x[mask], y[mask], rcond=None)[0] if len(x) else truth[q]

    def single(x: np.ndarray) -> Float[Array, "..."]:
        return jnp.asarray(x, jnp.float32)

    parts = (Dataset(single(x), single(y), jnp.asarray(mask)) for x, y, mask in (train, val, test))
    return Ridge(
        Federation(*parts),
        jnp.asarray(server),
        jnp.asarray(cluster),
        single(adjacency),
        single(truth),
        single(optimum),
    )


def mse_db(models: Float[Array, "c d"], data: Ridge) -> Float[Array, ""]:
    """(19) in dB: the mean over clients of |w_k - w*_q|^2 / |w*_q|^2.

    Args:
      models: w_k of each client [C, D].
      data: the federation, with the optimum w*_q of each client's cluster q.

    Example:
      >>> data = ridge(0, dim=3)
      >>> round(mse_db(1.1 * data.optimum[data.cluster], data).item(), 2)
      -20.0
    """
    best = data.optimum[data.cluster]
    error = jnp.sum(jnp.square(models - best), axis=1) / jnp.sum(jnp.square(best), axis=1)
    return 10 * jnp.log10(error.mean())
