"""The server's mathematics: functions from arrays to arrays, held against independent references.

May import `core`, and of other libraries jax, optax and jaxopt. A new similarity,
aggregate or solver goes here, one subject a file, with its claims in `tests/kernels`; the decorator
`checked` refuses arrays and models of another form than its hints say.

Functions that a method of one's own may want have names here too, such as `jaxfl.kernels.krum`;
those that one method alone needs are in their files:

- similarities of models: `similarities`, `cosine`, `dice`, `inner`, `gram`, `minus_l1`,
  `minus_l2`, `distances_l1`, `distances_l2`, `squared_distances`, `squared_differences`,
  `inverse_norms`, `label_similarity`, `sketches`
- weights of a graph: `collaboration_rows`, `alpha_for_groups`, `measured_rows`, `fill_rows`,
  `embedding_rows`, `shrunk_means`, `predictable`, `project_rows`, `project_capped_rows`,
  `attentive`, `heuristic`, `graph_rows`, `contraction`,
  `fomo_weights`, `head_weights`, `pull_rows`, `combination_rows`, `metropolis`,
  `column_stochastic`, `random_circle`, `random_receivers`, `least_similar`, `neighbour_mean`,
  `metropolis_rows`, `share_rows`, `mean_rows`, `neighbours_of`, `edges_of`,
  `reversible_rows`, `transport_plan`, `find_coalitions`,
  `coalition_weights`, `size_weights`, `positive_rows`, `top_edges`, `keep_largest`,
  `sparse_rows`, `dense_rows`
- mixing by weights: `mix`, `leave_out`, `isolate`, `within`, `keep_own`, `keep_part`,
  `everybody_if_nobody`, `mix_rows`, `mix_products`, `square_norms`
- clusters: `kmeans`, `nearest`, `centres`, `predecessors`, `together`, `split_clusters`,
  `merges`
- robust and other aggregates: `median`, `trimmed_mean`, `geometric_median`,
  `geometric_median_weights`, `krum`, `clip_updates`, `foolsgold`, `optimizer_step`
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
    fomo,
    gaussian,
    gossip,
    hypernet,
    learned,
    linkage,
    merit,
    mixing,
    neighbours,
    network,
    products,
    projection,
    propagate,
    reversible,
    robust,
    server_optimizer,
    similarity,
    simplex,
    sketch,
    sparse,
)
from jaxfl.kernels.amp import attentive, heuristic
from jaxfl.kernels.bipartition import split_clusters
from jaxfl.kernels.cluster import centres, kmeans, nearest, predecessors, together
from jaxfl.kernels.coalitions import coalition_weights, find_coalitions
from jaxfl.kernels.combination import combination_rows
from jaxfl.kernels.evidence import embedding_rows, predictable, shrunk_means
from jaxfl.kernels.fomo import fomo_weights
from jaxfl.kernels.gossip import (
    column_stochastic,
    least_similar,
    metropolis,
    neighbour_mean,
    random_circle,
    random_receivers,
)
from jaxfl.kernels.linkage import merges
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
from jaxfl.kernels.network import (
    edges_of,
    mean_rows,
    metropolis_rows,
    neighbours_of,
    share_rows,
)
from jaxfl.kernels.products import mix_products, square_norms
from jaxfl.kernels.projection import project_capped_rows, project_rows
from jaxfl.kernels.propagate import contraction, graph_rows
from jaxfl.kernels.reversible import label_similarity, reversible_rows, transport_plan
from jaxfl.kernels.robust import (
    clip_updates,
    foolsgold,
    geometric_median,
    geometric_median_weights,
    krum,
    median,
    trimmed_mean,
)
from jaxfl.kernels.server_optimizer import optimizer_step
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

__all__ = [
    "alignment",
    "alpha_for_groups",
    "amp",
    "attention",
    "attentive",
    "bipartition",
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
    "edges_of",
    "embedding_rows",
    "everybody_if_nobody",
    "evidence",
    "fill_rows",
    "find_coalitions",
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
    "linkage",
    "mean_rows",
    "measured_rows",
    "median",
    "merges",
    "merit",
    "metropolis",
    "metropolis_rows",
    "minus_l1",
    "minus_l2",
    "mix",
    "mix_products",
    "mix_rows",
    "mixing",
    "nearest",
    "neighbour_mean",
    "neighbours",
    "neighbours_of",
    "network",
    "optimizer_step",
    "positive_rows",
    "predecessors",
    "predictable",
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
    "server_optimizer",
    "share_rows",
    "shrunk_means",
    "similarities",
    "similarity",
    "simplex",
    "size_weights",
    "sketch",
    "sketches",
    "sparse",
    "sparse_rows",
    "split_clusters",
    "square_norms",
    "squared_differences",
    "squared_distances",
    "together",
    "top_edges",
    "transport_plan",
    "trimmed_mean",
    "within",
]
