"""What the server and the clients share: the model, its training and the method."""

import jax
import numpy as np

import jaxfl

CLIENTS = 4
# One example of the clients' data; only its types matter.
EXAMPLE = (np.zeros((8, 8, 1), np.uint8), np.int32(0))
KEY, INIT_KEY = jax.random.key(5), jax.random.key(1)

task = jaxfl.classification(
    jaxfl.models.mlp(10, hidden=(32,)),
    EXAMPLE[0],
    scale=16.0,
    steps=10,
    batch_size=16,
    optimizer=jaxfl.sgd(0.05),
)
algorithm = jaxfl.algorithms.pfedgraph(task)
participation = jaxfl.participation.full(CLIENTS)
