"""The gradient of the validation loss after three rounds of pFedGraph by its alpha and lambda."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

import jaxfl
from benchmarks.measure import best_ms
from jaxfl.core.ragged import padded
from jaxfl.core.types import Cohort
from jaxfl.simulation import mesh

AT = {"alpha": 0.3, "lam": 0.5}


def validation_loss(rounds: int, steps: int) -> Callable[[dict[str, Array]], Array]:
    """The mean loss of ten clients on digits, as a function of alpha and lambda.

    Each client has 30 images of five digits, and the models are an MLP. `snap` is off, because a
    threshold has no slope.
    """
    source = jaxfl.data.load("digits")
    parts = jaxfl.data.pathological(source.y_train, clients=10, seed=0, classes_per_client=5)
    data = jaxfl.data.federate(source, [rows[:30] for rows in parts])
    task = jaxfl.classification(
        jaxfl.models.mlp(source.classes),
        source.x_train[0],
        scale=source.scale,
        steps=steps,
        optimizer=jaxfl.sgd(0.05),
    )
    key = jax.random.key(0)
    start = jaxfl.algorithms.pfedgraph(task, snap=None).init(key, data.train)
    everybody = Cohort(jnp.arange(10), data.train, data.val)
    # vmap needs an array with a row for each client.
    validation = padded(data.val)

    def loss(values: dict[str, Any]) -> Array:
        algorithm = jaxfl.algorithms.pfedgraph(task, snap=None, **values)
        run = jaxfl.make_rounds(algorithm, jaxfl.participation.full(10))
        state, _ = run(key, data, start, 0, rounds)

        def on_validation(model, own):
            errors = task.problem.error(algorithm.apply(model, own.x), own.y)
            return jnp.sum(errors * own.mask) / jnp.sum(own.mask)

        return jax.vmap(on_validation)(algorithm.models(state, everybody), validation).mean()

    return loss


def section(rounds: int = 3, steps: int = 3) -> str:
    """The table."""
    rows = []
    with jax.set_mesh(mesh.make_mesh(1)):
        loss = validation_loss(rounds, steps)
        values = {name: jnp.float32(value) for name, value in AT.items()}
        for name, function in (("loss", loss), ("loss and gradient", jax.value_and_grad(loss))):
            began = time.perf_counter()
            lowered = jax.jit(function).lower(values)
            traced = time.perf_counter()
            compiled = lowered.compile()
            compiling = time.perf_counter() - traced
            milliseconds = best_ms(lambda compiled=compiled: compiled(values))
            kernels = f"{(compiled.as_text() or '').count(' fusion('):,}"
            times = f"{traced - began:.1f} | {compiling:.1f} | {milliseconds:.1f}"
            rows.append(f"| {name} | {times} | {kernels} |")
    return TEXT.format(rounds=rounds, steps=steps, rows="\n".join(rows))


TEXT = """## A gradient through rounds

The mean validation loss after {rounds} rounds of pFedGraph with {steps} local steps, and its
gradient by alpha and lambda (ten clients, an MLP on digits; one device).
[Learn a hyper-parameter through a run](tutorials/learned_hyperparameter.md) shows what it is for.

| | tracing, s | compiling, s | computing, ms | kernels |
|---|---:|---:|---:|---:|
{rows}

Other processors, and what was tried: [notebook](notebook.md#a-gradient-through-rounds-on-cpu).
"""
