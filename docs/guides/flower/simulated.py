"""The app by `make_rounds`, without messages."""

import jax
import jax.numpy as jnp
from digits.data import federation
from digits.method import CLIENTS, INIT_KEY, KEY, algorithm, participation, task

import jaxfl

state = algorithm.init(INIT_KEY, federation().train)
rounds = jaxfl.make_rounds(algorithm, participation)
evaluate = jaxfl.make_evaluate(algorithm, task, after="none")
for number in range(5):
    state, (info, _) = rounds(KEY, federation(), state, number, 1)
    scores = evaluate(KEY, federation(), state, jnp.arange(CLIENTS)).deployed.test
    print(number + 1, "rounds", *(f"{client}: {s:.4f}" for client, s in enumerate(scores)))
print(jax.device_get(info.weights)[-1].round(3))
