"""Steps that several methods share, which methods import from here by name.

May import `core`, `graphs`, `kernels` and `training`. A step goes here when a second method needs
it; until then it stays in the method's file. `admm` is a module, of GFed and GFedMtl.

- a round of messages: `compose`
- how a client starts: `Init`, `init_global`, `init_own`, `init_personal`, `init_parts`,
  `start_personal`
- what it does in a round: `train_and_send`, `seen`, `take_offered`, `report_of`, `displacement`
- what it deploys: `deploy_common`, `deploy_memory`, `deploy_personal`, `deploy_parts`, `Personal`,
  `personal_models`, `deploy_key`
- what the server sends: `download_server`
- what it makes of models: `Aggregate`, `mean_by_size`, `equal_mean`, `mean_of_products`,
  `Step`, `take_mean`, `take_part`
- whole methods with holes: `global_model`, `partial_model`, `shared_prototypes`
- a model that stays near a mixture: `Aligned`, `init_aligned`, `fit_aligned`, `offer_aligned`,
  `take_aligned`, `deploy_aligned`
- one of several models: `offer`, `train_choice`, `deploy_choice`
- clients that get all models: `Offer`, `choose_from_all`, `isolate_rows`, `keep_rows`
- weights of each layer: `by_layer`, `mix_layers`, `learned_mixtures`, `LayerRecord`, `LayerStep`,
  `LayerWeights`
- a head and what enters it: `head_of`, `features_of`, `training_features_of`, `class_features`,
  `part_weights`, `linear_head_of`, `linear_head`
- of several architectures: `small_problem`, `wide_problem`, `model_shapes`
- a small model beside the own one: `mutual_training`
- labels and prototypes: `class_count`, `class_sizes`, `has_labels`, `require_labels`, `Prototypes`,
  `no_prototypes`, `client_prototypes`, `distance_to_prototypes`, `mean_prototypes`,
  `examples_of`
- gradient descent at the server: `descend`
- messages over edges: `deliver`, `init_past`, `mix_delivered`, `copies_of`
- clients that tell a loss: `train_and_tell`, `client_losses`
- late clients: `Discount`, `discount`, `shares`, `stale_starts`
"""

from jaxfl.algorithms.steps.aggregates import (
    Aggregate,
    Step,
    equal_mean,
    mean_by_size,
    mean_of_products,
    take_mean,
    take_part,
)
from jaxfl.algorithms.steps.aligned_models import (
    Aligned,
    deploy_aligned,
    fit_aligned,
    init_aligned,
    offer_aligned,
    take_aligned,
)
from jaxfl.algorithms.steps.all_models import Offer, choose_from_all, isolate_rows, keep_rows
from jaxfl.algorithms.steps.choice import deploy_choice, offer, train_choice
from jaxfl.algorithms.steps.client_losses import client_losses, train_and_tell
from jaxfl.algorithms.steps.client_steps import (
    Init,
    deploy_common,
    deploy_memory,
    deploy_parts,
    deploy_personal,
    init_global,
    init_own,
    init_parts,
    init_personal,
    seen,
    take_offered,
    train_and_send,
)
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.delivery import copies_of, deliver, init_past, mix_delivered
from jaxfl.algorithms.steps.displacement import displacement
from jaxfl.algorithms.steps.heads import (
    class_features,
    features_of,
    head_of,
    linear_head,
    linear_head_of,
    part_weights,
    training_features_of,
)
from jaxfl.algorithms.steps.labels import class_count, class_sizes, has_labels, require_labels
from jaxfl.algorithms.steps.layerwise import (
    LayerRecord,
    LayerStep,
    LayerWeights,
    by_layer,
    learned_mixtures,
    mix_layers,
)
from jaxfl.algorithms.steps.mutual import mutual_training
from jaxfl.algorithms.steps.personal import Personal, deploy_key, personal_models, start_personal
from jaxfl.algorithms.steps.problems import model_shapes, small_problem, wide_problem
from jaxfl.algorithms.steps.prototypes import (
    Predict,
    Prototypes,
    client_prototypes,
    descend,
    distance_to_prototypes,
    examples_of,
    mean_prototypes,
    no_prototypes,
    shared_prototypes,
)
from jaxfl.algorithms.steps.staleness import Discount, discount, shares, stale_starts
from jaxfl.algorithms.steps.templates import global_model, partial_model
from jaxfl.core.messages import download_server, report_of

__all__ = [
    "Aggregate",
    "Aligned",
    "Discount",
    "Init",
    "LayerRecord",
    "LayerStep",
    "LayerWeights",
    "Offer",
    "Personal",
    "Predict",
    "Prototypes",
    "Step",
    "by_layer",
    "choose_from_all",
    "class_count",
    "class_features",
    "class_sizes",
    "client_losses",
    "client_prototypes",
    "compose",
    "copies_of",
    "deliver",
    "deploy_aligned",
    "deploy_choice",
    "deploy_common",
    "deploy_key",
    "deploy_memory",
    "deploy_parts",
    "deploy_personal",
    "descend",
    "discount",
    "displacement",
    "distance_to_prototypes",
    "download_server",
    "equal_mean",
    "examples_of",
    "features_of",
    "fit_aligned",
    "global_model",
    "has_labels",
    "head_of",
    "init_aligned",
    "init_global",
    "init_own",
    "init_parts",
    "init_past",
    "init_personal",
    "isolate_rows",
    "keep_rows",
    "learned_mixtures",
    "linear_head",
    "linear_head_of",
    "mean_by_size",
    "mean_of_products",
    "mean_prototypes",
    "mix_delivered",
    "mix_layers",
    "model_shapes",
    "mutual_training",
    "no_prototypes",
    "offer",
    "offer_aligned",
    "part_weights",
    "partial_model",
    "personal_models",
    "report_of",
    "require_labels",
    "seen",
    "shared_prototypes",
    "shares",
    "small_problem",
    "stale_starts",
    "start_personal",
    "take_aligned",
    "take_mean",
    "take_offered",
    "take_part",
    "train_and_send",
    "train_and_tell",
    "train_choice",
    "training_features_of",
    "wide_problem",
]
