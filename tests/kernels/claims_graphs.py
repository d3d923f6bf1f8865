"""Kernels that compare models, divide them into groups, and compute weights from them."""

import jax
import jax.numpy as jnp
from claims import KEY, Kernel, grid, line

from jaxfl.core.streams import client_keys
from jaxfl.kernels import (
    amp,
    bipartition,
    cluster,
    coalitions,
    combination,
    consensus,
    evidence,
    fomo,
    gossip,
    learned,
    linkage,
    merit,
    mixing,
    network,
    propagate,
    reversible,
    robust,
    sparse,
)
from jaxfl.kernels.projection import (
    capped_rows_by_jaxopt,
    project_capped_rows,
    project_rows,
)
from jaxfl.kernels.similarity import (
    cosine,
    dice,
    distances_between,
    distances_l1,
    distances_l2,
    gram,
    inner,
    inverse_norms,
    minus_l1,
    minus_l2,
    root,
    scaled,
    similarities,
    squared_differences,
    squared_distances,
    squared_distances_in_unit,
)
from jaxfl.kernels.simplex import (
    alpha_for_groups,
    collaboration_rows,
    fill_rows,
    measured_rows,
)

RING = jnp.ones((2, 2)) - jnp.eye(2)  # two servers, of two clusters each


def graph(c):  # row-stochastic weights that no model changes
    return jax.nn.softmax(-0.3 * jnp.abs(c.ids[:, None] - c.ids[None]).astype(float), axis=1)


def ranked(c):  # the same without ties
    away = jnp.abs(c.ids[:, None] - c.ids[None] + 0.5)
    return jax.nn.softmax(-0.3 * away.astype(float), axis=1)


def few(c):  # two entries of each row
    return sparse.sparse_rows(sparse.keep_largest(ranked(c), 1), 2)


def linked(c):  # edges of a directed graph
    return ((c.ids[:, None] + 2 * c.ids[None]) % 3 == 0) * (1.0 - jnp.eye(c.ids.size))


def listed(c):  # these edges as lists
    return network.among(network.neighbours_of(linked(c)), c.reported)


def met(c):  # whether a message arrived
    return (2 * c.ids[:, None] + c.ids[None]) % 5 != 0


def dense(rows):
    return sparse.dense_rows(rows, len(rows.columns))


def parts_mixed(c):
    rows = network.mean_rows(listed(c))
    pairs = jax.vmap(client_keys, (0, None))(client_keys(KEY, c.ids), c.ids)
    half = jnp.full(pairs.shape, 0.5)
    return network.mix_parts(rows, c.models, c.models, pairs, half)[0]


def some(c):  # nodes, at least one
    return c.reported | ~c.reported.any()


def halves(c):
    return c.ids % 2


def strength(c):
    return jnp.abs(c.models).max()


def cells(c):
    return jnp.where(c.reported, c.ids % 4, -1)


def servers(c):
    return consensus.server_round(cells(c), RING, strength(c), 2)[1]


def tau_grad(c):
    grads = jnp.concatenate([grid(c), jnp.zeros((c.ids.size, 4))], axis=1)  # [M, M + 4]
    return consensus.tau_grad(grads, cells(c), RING, jnp.asarray(0.5), 2)


def half_merged(c):
    """Who is in one cluster with whom after half of the merges."""
    cluster = linkage.merges(-line(c), c.ids, c.reported)[c.ids.size // 2]
    return jnp.asarray(cluster[:, None] == cluster[None], float)


def split_clusters(c):
    return bipartition.split_clusters(
        halves(c), c.reported, jnp.array([True, True, False]), jnp.array(2)
    )[0]


def kmeans(c):
    return cluster.kmeans(KEY, c.models, 2, c.ids, restarts=4, iterations=20).averaging


def centres(c):
    return cluster.centres(c.models, halves(c), jnp.zeros((2, c.models.shape[1])), c.reported)


def collaboration(measure="cosine", form="code", **options):
    def rows(c):
        similarity = similarities(c.models, measure)
        return collaboration_rows(similarity, mixing.size_weights(c.sizes), None, form, **options)

    return rows


def rows_of_learned(c):
    found = learned.layer_similarities(c.models, c.models + 1.0)
    weights = learned.initial_parameters(1)._replace(similarity=jnp.array([1.0, 0.5, -0.3]))
    return mixing.isolate(learned.learned_rows(weights, found, c.sizes, c.reported), c.reported)


def capped(c):
    return project_capped_rows(grid(c), jnp.full((c.ids.size, c.ids.size), 0.6))


def capped_by_jaxopt(c):
    return capped_rows_by_jaxopt(grid(c), jnp.full((c.ids.size, c.ids.size), 0.6))


def chosen(count):
    return lambda c: robust.krum(c.models, c.ids, c.reported, None, count)[None]


def apart(c):  # divergences between 0 and 1 [M, M]
    return -line(c) / (1 - line(c))


def coalitions_of(c):
    found = coalitions.find_coalitions(KEY, apart(c), c.sizes, 5.0, c.ids, coalitions=3, starts=4)
    return coalitions.coalition_weights(found.coalition, c.sizes)


def shortened(c):
    return robust.clip_updates(jnp.zeros_like(c.models), c.models, None, c.reported)


SIMILARITIES = "twins symmetric"
COSINES = "twins symmetric own_scale cosines"
DISTANCES = "twins symmetric shift nonnegative"
OF_COSINES = "simplex own_scale twins"
EXISTING = "simplex own_scale twins zero_alone"
TABLE = [
    Kernel(
        "amp.attentive",
        lambda c: amp.attentive(squared_distances(c.models), 0.5, 9.0),
        "pairs",
        "simplex",
    ),
    Kernel(
        "amp.attentive: large",
        lambda c: amp.attentive(-line(c), 1e4, 9.0),
        "pairs",
        "simplex",
        tolerance=1e-4,
    ),
    Kernel(
        "amp.heuristic",
        lambda c: amp.heuristic(cosine(c.models), 0.3, 5.0),
        "pairs",
        "simplex own_scale",
    ),
    Kernel(
        "bipartition.bipartition",
        lambda c: bipartition.bipartition(line(c), halves(c), c.ids),
        "rows",
        degree=0,
    ),
    Kernel("linkage.merges", half_merged, "pairs", degree=0),
    Kernel("bipartition.split_clusters", split_clusters, "rows"),
    Kernel(
        "bipartition.descendants",
        lambda c: bipartition.descendants(
            halves(c), c.sizes % 3 + 1, jnp.array([0, 0, 1]), jnp.array(3)
        ),
        "rows",
    ),
    Kernel("cluster.kmeans", kmeans, "columns", "simplex_or_zero general shift", degree=0),
    Kernel(
        "cluster.nearest",
        lambda c: cluster.nearest(c.models, jnp.eye(2, c.models.shape[1])),
        "rows",
        "twins general",
    ),
    Kernel(
        "similarity.distances_between",
        lambda c: distances_between(c.models, jnp.eye(2, c.models.shape[1])),
        "rows",
        "nonnegative",
    ),
    Kernel(
        "cluster.predecessors",
        lambda c: cluster.predecessors(
            jnp.array([[0, 2, 0], [0, 1, 0], [0, 0, 0]]),
            jnp.abs(c.models[0, 0]) * jnp.ones((3, 3)),
            jnp.array([True, True, False]),
            jnp.ones(3, bool),
        ),
        "none",
        "nonnegative",
    ),
    Kernel(
        "coalitions.error_bounds",
        lambda c: coalitions.error_bounds(halves(c), apart(c), c.sizes, 5.0),
        "rows",
        "nonnegative",
    ),
    Kernel("coalitions.find_coalitions", coalitions_of, "pairs", "simplex"),
    Kernel(
        "coalitions.in_order",
        lambda c: coalitions.coalition_weights(coalitions.in_order(c.ids % 3), c.sizes),
        "pairs",
        "simplex",
    ),
    Kernel(
        "coalitions.coalition_weights",
        lambda c: coalitions.coalition_weights(halves(c), c.sizes),
        "pairs",
        "simplex",
    ),
    Kernel("cluster.centres", centres, "none", degree=1),
    Kernel(
        "cluster.together", lambda c: cluster.together(halves(c), c.reported), "pairs", "simplex"
    ),
    Kernel(
        "combination.combination_rows",
        lambda c: combination.combination_rows(jnp.abs(c.models[:, 0]), c.models, c.reported),
        "pairs",
        "simplex",
        decades=9,
        tolerance=1e-2,
    ),
    Kernel("consensus.collect", lambda c: consensus.collect(cells(c), 4), "columns", "simplex"),
    Kernel("consensus.couple", lambda c: consensus.couple(strength(c), 3), "none", "simplex"),
    Kernel("consensus.neighbourhood", lambda c: consensus.neighbourhood(RING), "none", "simplex"),
    Kernel(
        "consensus.symmetric_neighbourhood",
        lambda c: consensus.symmetric_neighbourhood(RING),
        "none",
        "simplex",
    ),
    Kernel("consensus.disagreement_rows", lambda c: consensus.disagreement_rows(RING, 2), "none"),
    Kernel(
        "consensus.exchange", lambda c: consensus.exchange(RING, strength(c), 2), "none", "simplex"
    ),
    Kernel("consensus.server_round", servers, "columns", "simplex"),
    Kernel("consensus.tau_grad", tau_grad, "none", degree=1),
    Kernel(
        "consensus.upload_weights",
        lambda c: consensus.upload_weights(servers(c)[c.ids % 4]),
        "pairs",
        "simplex",
    ),
    Kernel(
        "consensus.disagreement",
        lambda c: consensus.disagreement(c.models[:, None]),
        "none",
        "shift",
        1,
        15,
    ),
    Kernel(
        "fomo.fomo_weights",
        lambda c: fomo.fomo_weights(c.models[:, 0], grid(c), -line(c)),
        "pairs",
        "simplex_or_zero",
        0,
    ),
    Kernel(
        "gossip.metropolis", lambda c: gossip.metropolis(linked(c), c.reported), "pairs", "simplex"
    ),
    Kernel(
        "gossip.column_stochastic",
        lambda c: gossip.column_stochastic(linked(c), c.reported).T,
        "pairs",
        "simplex",
    ),
    Kernel(
        "gossip.random_circle",
        lambda c: network.edges_of(gossip.random_circle(KEY, c.ids.size, 2, c.ids, c.reported)),
        "pairs",
    ),
    Kernel(
        "gossip.random_receivers",
        lambda c: network.edges_of(gossip.random_receivers(KEY, c.ids.size, 2, c.ids, c.reported)),
        "pairs",
    ),
    Kernel(
        "gossip.least_similar",
        # Without ties, so that nothing depends on the order.
        lambda c: network.edges_of(gossip.least_similar(ranked(c), 2, c.reported)),
        "pairs",
    ),
    Kernel("gossip.neighbour_mean", lambda c: gossip.neighbour_mean(linked(c)), "pairs", "simplex"),
    Kernel(
        "network.neighbours_of",
        lambda c: network.edges_of(network.neighbours_of(linked(c))),
        "pairs",
    ),
    Kernel("network.edges_of", lambda c: network.edges_of(listed(c)), "pairs"),
    Kernel("network.among", lambda c: network.edges_of(listed(c)), "pairs"),
    Kernel("network.to_others", lambda c: network.to_others(listed(c)), "rows"),
    Kernel("network.from_others", lambda c: network.from_others(listed(c)), "rows"),
    Kernel(
        "network.metropolis_rows",
        lambda c: dense(network.metropolis_rows(listed(c), 0.1, met(c))),
        "pairs",
        "simplex",
    ),
    Kernel(
        "network.share_rows",
        lambda c: dense(network.share_rows(listed(c), 0.1, met(c))).T,
        "pairs",
        "simplex",
    ),
    Kernel(
        "network.mean_rows",
        lambda c: dense(network.mean_rows(listed(c), met(c))),
        "pairs",
        "simplex",
    ),
    Kernel(
        "network.rows_on",
        lambda c: dense(network.rows_on(graph(c), listed(c), met(c))),
        "pairs",
        "simplex",
    ),
    Kernel(
        "network.for_mixing",
        lambda c: network.for_mixing(network.mean_rows(listed(c))),
        "pairs",
        "simplex",
    ),
    Kernel(
        "network.for_info",
        lambda c: network.for_info(network.mean_rows(listed(c))),
        "pairs",
        "simplex",
    ),
    Kernel(
        "network.mix_parts",
        parts_mixed,
        "rows",
    ),
    Kernel("learned.initial_parameters", lambda c: learned.initial_parameters(2)[3], "none"),
    Kernel(
        "learned.layer_similarities",
        lambda c: learned.layer_similarities(c.models, c.models)[1],
        "pairs",
        COSINES,
        0,
    ),
    Kernel("learned.learned_rows", rows_of_learned, "pairs", "simplex", tolerance=1e-4),
    Kernel(
        "learned.project_smoothly",
        lambda c: learned.project_smoothly(grid(c), 0.1),
        "pairs",
        "simplex",
    ),
    Kernel(
        "merit.exponentiated",
        lambda c: merit.exponentiated(graph(c), grid(c), 0.5),
        "pairs",
        "simplex",
        tolerance=1e-4,
    ),
    Kernel(
        "merit.head_weights", lambda c: merit.head_weights(cosine(c.models)), "pairs", "simplex"
    ),
    Kernel("merit.pull_rows", lambda c: merit.pull_rows(linked(c) > 0, 0.3), "pairs", "simplex"),
    Kernel(
        "mixing.within",
        lambda c: mixing.within(graph(c) / 2, c.reported),
        "pairs",
        "simplex",
    ),
    Kernel("mixing.mix", lambda c: mixing.mix(graph(c), c.models), "rows", "between", 1),
    Kernel(
        "mixing.leave_out", lambda c: mixing.leave_out(graph(c), c.reported), "pairs", "simplex"
    ),
    Kernel("mixing.keep_own", lambda c: mixing.keep_own(graph(c), c.reported), "pairs", "simplex"),
    Kernel(
        "mixing.keep_part",
        lambda c: mixing.keep_part(graph(c), c.reported / 2),
        "pairs",
        "simplex",
    ),
    Kernel("mixing.isolate", lambda c: mixing.isolate(graph(c), c.reported), "pairs", "simplex"),
    Kernel(
        "mixing.possible_sizes", lambda c: mixing.possible_sizes(c.sizes), "rows", "nonnegative"
    ),
    Kernel(
        "mixing.size_weights", lambda c: mixing.size_weights(c.sizes)[None], "columns", "simplex"
    ),
    Kernel("mixing.positive_rows", lambda c: mixing.positive_rows(grid(c)), "pairs", "simplex", 0),
    Kernel("mixing.disturbance", lambda c: mixing.disturbance(KEY, c.ids.size, 0.1), "none"),
    Kernel(
        "propagate.graph_rows: sum",
        lambda c: propagate.graph_rows(cosine(c.models)),
        "pairs",
        EXISTING,
    ),
    Kernel(
        "propagate.graph_rows: softmax",
        lambda c: propagate.graph_rows(cosine(c.models), "softmax"),
        "pairs",
        EXISTING,
    ),
    Kernel(
        "propagate.propagate",
        lambda c: propagate.propagate(graph(c), 3, some(c)),
        "pairs",
        "simplex",
    ),
    Kernel(
        "propagate.contraction",
        lambda c: propagate.contraction(graph(c), 3, some(c)),
        "none",
        "nonnegative",
    ),
    Kernel(
        "reversible.label_similarity",
        lambda c: reversible.label_similarity(jnp.abs(c.models)),
        "pairs",
        "twins symmetric nonnegative",
        0,
    ),
    Kernel(
        "reversible.reversible_rows",
        lambda c: reversible.reversible_rows(graph(c), c.sizes * c.reported, 0.4),
        "pairs",
        "simplex",
    ),
    Kernel(
        "reversible.transport_plan",
        lambda c: reversible.transport_plan(0.4 * graph(c), mixing.size_weights(c.sizes)),
        "pairs",
        "symmetric nonnegative",
    ),
    Kernel(
        "reversible.strength_of_round",
        lambda c: reversible.strength_of_round(3, 0.2, 0.2, 1.0, strength(c)),
        "none",
        "nonnegative",
    ),
    Kernel("robust.median", lambda c: robust.median(c.models, c.reported), "none", "between", 1),
    Kernel(
        "robust.trimmed_mean",
        lambda c: robust.trimmed_mean(c.models, 0.3, c.reported),
        "none",
        "between",
        1,
    ),
    Kernel(
        "robust.geometric_median",
        lambda c: robust.geometric_median(c.models, None, c.reported),
        "none",
        "between",
        decades=15,
    ),
    Kernel(
        "robust.geometric_median_weights",
        lambda c: robust.geometric_median_weights(c.models, None, c.reported)[None],
        "columns",
        "simplex",
        decades=15,
    ),
    Kernel("robust.ranks", lambda c: robust.ranks(c.models[:, 0], c.ids), "rows", "nonnegative"),
    Kernel(
        "mixing.everybody_if_nobody",
        lambda c: mixing.everybody_if_nobody(len(c.ids), c.reported),
        "rows",
        "nonnegative",
    ),
    Kernel("robust.krum: one", chosen(1), "columns", "simplex general shift", 0),
    Kernel("robust.krum: several", chosen(None), "columns", "simplex general shift", 0),
    Kernel("robust.clip_updates", shortened, "rows", degree=1),
    Kernel(
        "robust.foolsgold",
        lambda c: robust.foolsgold(cosine(c.models), c.reported),
        "rows",
        "nonnegative",
    ),
    Kernel("similarity.gram", lambda c: gram(c.models), "pairs", SIMILARITIES, 2, 15),
    Kernel("similarity.cosine", lambda c: cosine(c.models), "pairs", COSINES),
    Kernel(
        "similarity.similarities: cosine",
        lambda c: similarities(c.models, "cosine"),
        "pairs",
        COSINES,
    ),
    Kernel("similarity.dice", lambda c: dice(c.models), "pairs", "twins symmetric cosines", 0),
    Kernel(
        "similarity.similarities: dice",
        lambda c: similarities(c.models, "dice"),
        "pairs",
        "twins symmetric cosines",
        0,
    ),
    Kernel(
        "similarity.inner",
        lambda c: inner(c.models),
        "pairs",
        SIMILARITIES,
        2,
    ),
    Kernel(
        "similarity.minus_l2",
        lambda c: minus_l2(c.models),
        "pairs",
        SIMILARITIES,
        1,
        tolerance=3e-3,
    ),
    Kernel(
        "similarity.minus_l1",
        lambda c: minus_l1(c.models),
        "pairs",
        SIMILARITIES + " shift",
        1,
    ),
    Kernel("similarity.distances_l1", lambda c: distances_l1(c.models), "pairs", DISTANCES, 1),
    Kernel(
        "similarity.distances_l2",
        lambda c: distances_l2(c.models),
        "pairs",
        "twins symmetric nonnegative",
        1,
        tolerance=3e-3,
    ),
    Kernel(
        "similarity.squared_differences",
        lambda c: squared_differences(c.models),
        "pairs",
        DISTANCES,
        2,
    ),
    Kernel(
        "similarity.squared_distances",
        lambda c: squared_distances(c.models),
        "pairs",
        DISTANCES,
        2,
    ),
    Kernel(
        "similarity.squared_distances_in_unit",
        lambda c: squared_distances_in_unit(c.models)[0],
        "pairs",
        "twins symmetric nonnegative",
    ),
    Kernel("similarity.root", lambda c: root(jnp.abs(c.models)), "rows", "nonnegative"),
    Kernel(
        "similarity.inverse_norms",
        lambda c: inverse_norms(c.models),
        "rows",
        "twins nonnegative",
        -1,
    ),
    Kernel("similarity.scaled", lambda c: scaled(c.models)[0], "rows", "twins"),
    Kernel(
        "evidence.embedding_rows",
        lambda c: evidence.embedding_rows(c.models, 1 / (1.0 + c.sizes), c.reported),
        "pairs",
        "simplex",
        tolerance=1e-3,
    ),
    Kernel(
        "evidence.shrunk_means",
        lambda c: evidence.shrunk_means(c.models, c.models**2 + 1.0, c.sizes.astype(float)).mean,
        "rows",
        decades=15,
        tolerance=1e-4,
    ),
    Kernel(
        "evidence.predictable",
        lambda c: evidence.predictable(
            jnp.stack([c.models[:, 0], c.models[:, 0] ** 2 + 1.0], axis=1),
            jnp.stack([c.models[:, 1], c.models[:, 1] ** 2 + 1.0], axis=1),
            c.sizes.astype(float),
        ).astype(float),
        "rows",
        decades=15,
    ),
    Kernel(
        "simplex.measured_rows",
        lambda c: measured_rows(c.models, 0.5 * c.models, c.reported),
        "pairs",
        "simplex",
        tolerance=1e-3,
    ),
    Kernel(
        "simplex.fill_rows",
        lambda c: fill_rows(jnp.abs(grid(c)), 1.0 + c.sizes),
        "pairs",
        "simplex",
        tolerance=1e-4,
    ),
    Kernel("simplex.collaboration_rows: code", collaboration(), "pairs", OF_COSINES),
    Kernel("simplex.collaboration_rows: paper", collaboration(form="paper"), "pairs", OF_COSINES),
    Kernel(
        "simplex.collaboration_rows: capped",
        collaboration(caps=0.6),
        "pairs",
        OF_COSINES,
    ),
    Kernel(
        "simplex.collaboration_rows: jaxopt",
        collaboration(solver="jaxopt", caps=0.6),
        "pairs",
        OF_COSINES,
    ),
    Kernel("simplex.collaboration_rows: none", collaboration(solver="none"), "pairs", EXISTING),
    Kernel(
        "simplex.collaboration_rows: inner",
        collaboration("inner"),
        "pairs",
        "simplex general",
        tolerance=1e-4,
    ),
    Kernel(
        "simplex.collaboration_rows: l2",
        collaboration("l2"),
        "pairs",
        "simplex general",
        tolerance=1e-4,
    ),
    Kernel(
        "simplex.collaboration_rows: inner, none",
        collaboration("inner", solver="none"),
        "pairs",
        "simplex",
        0,
    ),
    Kernel(
        "simplex.alpha_for_groups",
        lambda c: alpha_for_groups(similarities(c.models, "cosine"), 3, c.reported),
        "none",
        degree=0,
    ),
    Kernel("projection.project_rows", lambda c: project_rows(grid(c)), "pairs", "simplex"),
    Kernel("projection.project_capped_rows", capped, "pairs", "simplex"),
    Kernel("projection.capped_rows_by_jaxopt", capped_by_jaxopt, "pairs", "simplex"),
    Kernel(
        "sparse.largest_edges", lambda c: sparse.largest_edges(ranked(c), 2), "pairs", "nonnegative"
    ),
    Kernel("sparse.keep_largest", lambda c: sparse.keep_largest(ranked(c), 2), "pairs", "simplex"),
    Kernel("sparse.sparse_rows", lambda c: few(c).values, "rows", "nonnegative"),
    Kernel(
        "sparse.dense_rows", lambda c: sparse.dense_rows(few(c), c.ids.size), "pairs", "simplex"
    ),
    Kernel(
        "sparse.top_edges", lambda c: sparse.top_edges(2)(ranked(c)).weights, "pairs", "simplex"
    ),
    Kernel("sparse.mix_rows", lambda c: sparse.mix_rows(few(c), c.models), "rows", "between", 1),
]
