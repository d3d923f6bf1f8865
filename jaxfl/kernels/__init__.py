"""The server's mathematics: functions from arrays to arrays, held against independent references.

May import `core`, and of other libraries jax, optax and jaxopt. A new similarity,
aggregate or solver goes here, one subject a file, with its claims in `tests/kernels`; the decorator
`checked` refuses arrays and models of another form than its hints say.

Functions that a method of one's own may want have names here too, such as `jaxfl.kernels.krum`;
those that one method alone needs are in their files:

- similarities of models: `similarities`, `cosine`, `dice`, `inner`, `gram`, `minus_l1`,
  `minus_l2`, `distances_l1`, `distances_l2`, `squared_distances`, `squared_differences`,
  `inverse_norms`, `linear_cka`, `label_similarity`, `sinkhorn_plan`, `sinkhorn_distances`,
  `sketches`
- weights of a graph: `collaboration_rows`, `alpha_for_groups`, `measured_rows`, `fill_rows`,
  `all_for_one_rows`, `embedding_rows`, `shrunk_means`, `project_rows`,
  `project_capped_rows`, `attentive`, `heuristic`, `graph_rows`, `contraction`,
  `fomo_weights`, `head_weights`, `pull_rows`, `combination_rows`, `metropolis`,
  `column_stochastic`, `random_circle`, `random_receivers`, `least_similar`, `neighbour_mean`,
  `reversible_rows`, `transport_plan`, `find_coalitions`,
  `coalition_weights`, `size_weights`, `positive_rows`, `top_edges`, `keep_largest`,
  `sparse_rows`, `dense_rows`
- mixing by weights: `mix`, `leave_out`, `isolate`, `within`, `keep_own`, `keep_part`,
  `everybody_if_nobody`, `mix_rows`, `mix_products`
- clusters: `kmeans`, `nearest`, `centres`, `predecessors`, `together`, `split_clusters`
- robust and other aggregates: `median`, `trimmed_mean`, `geometric_median`,
  `geometric_median_weights`, `krum`, `bulyan`, `clip_updates`, `foolsgold`, `dnc`, `fltrust`,
  `fisher_mean`, `optimizer_step`
"""

from jaxfl.kernels import (
    alignment,
    amp,
    attention,
    bipartition,
    cluster,
    coalitions,
    combination,
    consensus,
    contrastive,
    coupling,
    evidence,
    filters,
    fomo,
    gaussian,
    gossip,
    hypernet,
    learned,
    merit,
    mixing,
    neighbours,
    products,
    projection,
    propagate,
    reversible,
    robust,
    server,
    similarity,
    simplex,
    sketch,
    sparse,
    transport,
)
from jaxfl.kernels.amp import attentive, heuristic
from jaxfl.kernels.bipartition import split_clusters
from jaxfl.kernels.cluster import centres, kmeans, nearest, predecessors, together
from jaxfl.kernels.coalitions import coalition_weights, find_coalitions
from jaxfl.kernels.combination import combination_rows
from jaxfl.kernels.evidence import all_for_one_rows, embedding_rows, shrunk_means
from jaxfl.kernels.filters import dnc, fisher_mean, fltrust, linear_cka
from jaxfl.kernels.fomo import fomo_weights
from jaxfl.kernels.gossip import (
    column_stochastic,
    least_similar,
    metropolis,
    neighbour_mean,
    random_circle,
    random_receivers,
)
from jaxfl.kernels.merit import head_weights, pull_rows
from jaxfl.kernels.mixing import (
    everybody_if_nobody,
    isolate,
    keep_own,
    keep_part,
    leave_out,
    mix,
    positive_rows,
    size_weights,
    within,
)
from jaxfl.kernels.products import mix_products
from jaxfl.kernels.projection import project_capped_rows, project_rows
from jaxfl.kernels.propagate import contraction, graph_rows
from jaxfl.kernels.reversible import label_similarity, reversible_rows, transport_plan
from jaxfl.kernels.robust import (
    bulyan,
    clip_updates,
    foolsgold,
    geometric_median,
    geometric_median_weights,
    krum,
    median,
    trimmed_mean,
)
from jaxfl.kernels.server import optimizer_step
from jaxfl.kernels.similarity import (
    cosine,
    dice,
    distances_l1,
    distances_l2,
    gram,
    inner,
    inverse_norms,
    minus_l1,
    minus_l2,
    similarities,
    squared_differences,
    squared_distances,
)
from jaxfl.kernels.simplex import alpha_for_groups, collaboration_rows, fill_rows, measured_rows
from jaxfl.kernels.sketch import sketches
from jaxfl.kernels.sparse import dense_rows, keep_largest, mix_rows, sparse_rows, top_edges
from jaxfl.kernels.transport import sinkhorn_distances, sinkhorn_plan

__all__ = [
    "alignment",
    "all_for_one_rows",
    "alpha_for_groups",
    "amp",
    "attention",
    "attentive",
    "bipartition",
    "bulyan",
    "centres",
    "clip_updates",
    "cluster",
    "coalition_weights",
    "coalitions",
    "collaboration_rows",
    "column_stochastic",
    "combination",
    "combination_rows",
    "consensus",
    "contraction",
    "contrastive",
    "cosine",
    "coupling",
    "dense_rows",
    "dice",
    "distances_l1",
    "distances_l2",
    "dnc",
    "embedding_rows",
    "everybody_if_nobody",
    "evidence",
    "fill_rows",
    "filters",
    "find_coalitions",
    "fisher_mean",
    "fltrust",
    "fomo",
    "fomo_weights",
    "foolsgold",
    "gaussian",
    "geometric_median",
    "geometric_median_weights",
    "gossip",
    "gram",
    "graph_rows",
    "head_weights",
    "heuristic",
    "hypernet",
    "inner",
    "inverse_norms",
    "isolate",
    "keep_largest",
    "keep_own",
    "keep_part",
    "kmeans",
    "krum",
    "label_similarity",
    "learned",
    "least_similar",
    "leave_out",
    "linear_cka",
    "measured_rows",
    "median",
    "merit",
    "metropolis",
    "minus_l1",
    "minus_l2",
    "mix",
    "mix_products",
    "mix_rows",
    "mixing",
    "nearest",
    "neighbour_mean",
    "neighbours",
    "optimizer_step",
    "positive_rows",
    "predecessors",
    "products",
    "project_capped_rows",
    "project_rows",
    "projection",
    "propagate",
    "pull_rows",
    "random_circle",
    "random_receivers",
    "reversible",
    "reversible_rows",
    "robust",
    "server",
    "shrunk_means",
    "similarities",
    "similarity",
    "simplex",
    "sinkhorn_distances",
    "sinkhorn_plan",
    "size_weights",
    "sketch",
    "sketches",
    "sparse",
    "sparse_rows",
    "split_clusters",
    "squared_differences",
    "squared_distances",
    "together",
    "top_edges",
    "transport",
    "transport_plan",
    "trimmed_mean",
    "within",
]
