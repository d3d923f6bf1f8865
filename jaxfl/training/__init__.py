"""The client's side: what a task is, and how a cohort trains on its own data.

May import `core` and `kernels`. A new objective, optimiser or adapter of a model library goes here;
what happens to a model on its way to the server is an uplink, which `channel` applies.

What methods need of it has names here:

- losses and what they are made of: `data_loss`, `loss_of`, `of_part`, `proximal`, `masked_mean`,
  `training_predictions`
- losses of deployed models: `deployed_losses`, `completion`
- statistics of BatchNorm and parameters apart: `trainable`, `statistics`, `of_statistics`,
  `without_statistics`, `moving_statistics`, `change_term`
"""

from jaxfl.core.trainable import of_statistics, trainable
from jaxfl.training.batch_statistics import (
    change_term,
    moving_statistics,
    statistics,
    without_statistics,
)
from jaxfl.training.deployed import completion, deployed_losses
from jaxfl.training.objectives import (
    data_loss,
    loss_of,
    masked_mean,
    of_part,
    proximal,
    training_predictions,
)

__all__ = [
    "change_term",
    "completion",
    "data_loss",
    "deployed_losses",
    "loss_of",
    "masked_mean",
    "moving_statistics",
    "of_part",
    "of_statistics",
    "proximal",
    "statistics",
    "trainable",
    "training_predictions",
    "without_statistics",
]
