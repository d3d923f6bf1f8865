"""Rules that the program of a round shows: it is traced, and nothing is computed."""

import functools
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.edges import Edges
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.streams import Stream
from jaxfl.core.types import (
    AlgorithmFactory,
    Cohort,
    Fit,
    Info,
    Objective,
    Params,
    PRNGKey,
    State,
    take_offer,
)
from jaxfl.experiment.privacy.dataflow import follow, mark
from jaxfl.testing.equality import require
from jaxfl.testing.federations import C, opposite_groups, uneven
from jaxfl.testing.lineage import lineages
from jaxfl.testing.quick_key import quick_key
from jaxfl.testing.runs import cohort_of, made
from jaxfl.testing.tasks import normed, shallow
from jaxfl.testing.variants import variants
from jaxfl.training.optimizers import sgd
from jaxfl.uplink.attacks import attack


class Traced(NamedTuple):
    """The programs of the initial state and of a round of all clients; shapes of their results."""

    init: ClosedJaxpr
    round: ClosedJaxpr
    state: State
    after: State
    info: Info
    deployed: Params
    # whether the round offers each client a model that it may refuse
    offers: bool
    # whether it asks the task which edges of its graph to keep
    limits: bool
    # of each upload, whether the method says to it which clients' uploads are lost
    losses: list[bool]
    # whether local training begins from the server's state, or is drawn to it
    starts: bool
    # the shapes of the examples that were augmented
    examples: set[tuple[int, ...]]


# The shapes of the examples that were augmented since `traced` began.
_augmented: set[tuple[int, ...]] = set()


def _augment(key: Any, x: Any) -> Any:
    _augmented.add(x.shape[1:])
    return x


def _optimizer(number: Any) -> Any:
    return sgd(0.1)


@functools.cache
def _lies() -> Callable:
    """An attack that draws random numbers; the same object each time, so that tasks are too."""
    return attack("gauss", np.ones(C, bool))


@functools.cache
def traced(factory: AlgorithmFactory, make_task: Callable = shallow, **hyper: Any) -> Traced:
    """The method under an attack that draws random numbers, with an optimiser for each round.

    It is traced once for several rules.
    """
    asked = []

    def accept(own: Params, offered: Params, cohort: Cohort) -> Any:
        asked.append(own)
        return take_offer(own, offered, cohort)

    limited = []

    def keep_edges(weights: Any) -> Edges:
        limited.append(weights)
        return Edges(weights, weights)

    _augmented.clear()
    plain = make_task(uplink=_lies(), augment=_augment, optimizer=_optimizer)
    losses = []

    def upload(key: Any, before: Params, after: Params, ids: Any, lost: Any = None) -> Any:
        losses.append(lost is not None)
        return plain.upload(key, before, after, ids, lost)

    def trainer(objective: Objective, **differing: Any) -> Fit:
        fit = plain.trainer(objective, **differing)

        def marked(key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort) -> Any:
            given = (key, params, anchor, cohort)
            program, shapes = jax.make_jaxpr(fit, return_shape=True)(*given)
            # An objective may use arrays of the round that are not in its anchor.
            mark("fit", (params, anchor, program.consts), ())
            results = jaxpr_as_fun(program)(*jax.tree.leaves(given))
            return jax.tree.unflatten(jax.tree.structure(shapes), results)

        return marked

    task = plain._replace(accept=accept, keep_edges=keep_edges, upload=upload, trainer=trainer)
    algorithm = factory(task, **hyper)
    data = uneven()
    key = quick_key(0)
    init, state = jax.make_jaxpr(algorithm.init, return_shape=True)(key, data.train)
    losses.clear()  # before the first round nothing is lost
    cohort = cohort_of(data, np.arange(C))._replace(lost=jnp.zeros(C, bool))
    step, (after, info) = jax.make_jaxpr(algorithm.round, return_shape=True)(key, state, cohort)
    models = jax.eval_shape(algorithm.models, state, cohort)
    if algorithm.warn_of_sizes is not None:
        algorithm.warn_of_sizes(np.array([30, 40]))
    before = len(jax.tree.leaves((key, state.clients)))
    own = range(before, before + len(jax.tree.leaves(state.server)))
    inputs = [place in own for place in range(len(step.jaxpr.invars))]
    return Traced(
        init=init,
        round=step,
        state=state,
        after=after,
        info=info,
        deployed=models,
        offers=bool(asked),
        limits=bool(limited),
        losses=losses,
        starts=follow(step.jaxpr, inputs).learned,
        examples=set(_augmented),
    )


def check_shapes(factory: AlgorithmFactory) -> None:
    """A round keeps the shapes and the types of the state, and its info has the known shapes."""
    _, _, state, after, info, deployed, *_ = traced(factory)
    require(
        jax.tree.structure(after) == jax.tree.structure(state),
        "the state after a round has another structure than `init` gives",
    )
    leaves = jax.tree_util.tree_leaves_with_path(state)
    for (path, old), new in zip(leaves, jax.tree.leaves(after), strict=True):
        require(
            (new.shape, new.dtype, new.weak_type) == (old.shape, old.dtype, old.weak_type),
            f"{tree.path(path)} of the state is {_form(old)} before a round, {_form(new)} after it",
        )
    for name in ("loss", "up", "down", "batches", "reported"):
        shape = getattr(info, name).shape
        require(shape == (C,), f"info.{name} is {list(shape)}: expected [{C}], one row a client")
    for matrix in jax.tree.leaves(info.weights):
        expected = "(receiver, sender)"
        require(
            matrix.shape == (C, C),
            f"info.weights are {list(matrix.shape)}: expected [{C}, {C}] {expected}",
        )
    for name, value in info.metrics.items():
        require(value.shape == (), f"metric {name} is {list(value.shape)}: expected one number")
    # The trained models can be deployed and scored as those that the method deploys.
    require(
        [_form(x) for x in jax.tree.leaves(info.trained)]
        == [_form(x) for x in jax.tree.leaves(deployed)]
        and jax.tree.structure(info.trained) == jax.tree.structure(deployed),
        "info.trained and `models` have different forms",
    )


def _form(leaf: Any) -> str:
    weak = " of Python" if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype} {list(leaf.shape)}{weak}"


def check_augmentation(factory: AlgorithmFactory) -> None:
    """Inputs are augmented as they are given: whatever is computed, never of another shape."""
    given = {uneven().train.x.shape[2:]}
    seen = traced(factory).examples
    require(seen == given, f"examples of the shapes {seen} are augmented: expected {given} alone")


def check_offers(factory: AlgorithmFactory) -> None:
    """A method says whether it offers models that clients may refuse."""
    _fact("offers_mixture", traced(factory).offers, factory, "calls task.accept")


def check_top_edges(factory: AlgorithmFactory) -> None:
    """A method says whether its graph may be limited to the largest weights."""
    _fact("takes_top_edges", traced(factory).limits, factory, "calls task.keep_edges")


def check_start(factory: AlgorithmFactory) -> None:
    """A method says whether local training starts from the server's state, or is drawn to it.

    If not, clients train from what they have kept since they last took part. An answer of False can
    be relied on in a method that calls `Task.trainer`. Of mixtures that a round makes of other
    clients' states before training it says nothing: the method states them,
    `mixes_before_training`.
    """
    _fact("starts_from_server", traced(factory).starts, factory, "trains from the server's state")


def _fact(name: str, found: bool, factory: AlgorithmFactory, what: str) -> None:
    does = "" if found else "not "
    require(
        found == getattr(facts_of(factory), name),
        f"it is {does}so that a round {what}: state {name}={found} in @method(...)",
    )


def check_variants(factory: AlgorithmFactory) -> None:
    """What a method says of itself holds under each of its options."""
    for hyper in variants(factory):
        check_variant(factory, normed, hyper)


def check_variant(factory: AlgorithmFactory, make_task: Callable, hyper: dict) -> Traced | None:
    """What a method says of itself holds with these options.

    Returns:
      its programs; None for an option that takes effect beside another one only.
    """
    facts = facts_of(factory)
    try:
        found = traced(factory, make_task, **hyper)
    except InputError:
        return None
    require(found.offers == facts.offers_mixture, f"offers_mixture does not hold with {hyper}")
    require(found.limits == facts.takes_top_edges, f"takes_top_edges does not hold with {hyper}")
    require(
        facts.starts_from_server or not found.starts,
        f"starts_from_server=False does not hold with {hyper}",
    )
    return found


def check_losses(factory: AlgorithmFactory) -> None:
    """Every upload of a round can be lost."""
    require(
        all(traced(factory).losses),
        "an upload does not know of lost ones: give cohort.lost to task.upload, as compose does",
    )


def check_client_axis(factory: AlgorithmFactory) -> None:
    """The clients' state has the client axis first, and the server's state has none."""
    few = traced(factory).state
    twice = opposite_groups(clients=2 * C)
    many = jax.eval_shape(made(factory, shallow).init, quick_key(0), twice.train)
    for state, clients in ((few, C), (many, 2 * C)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(state.clients):
            require(
                leaf.shape[:1] == (clients,),
                f"{tree.path(path)} of the clients' state is {list(leaf.shape)} for {clients} "
                "clients: expected the client axis first; what belongs to none goes to the server",
            )
    require(
        _rows(few, C) == _rows(many, 2 * C),
        "a client's state has a shape that depends on the number of clients",
    )
    leaves = jax.tree_util.tree_leaves_with_path(few.server)
    for (path, leaf), other in zip(leaves, jax.tree.leaves(many.server), strict=True):
        require(
            leaf.shape == other.shape,
            f"{tree.path(path)} of the server's state is {list(leaf.shape)} for {C} clients and "
            f"{list(other.shape)} for {2 * C}: what it keeps for a client goes to the records",
        )


def _rows(state: State, clients: int) -> list[PyTree]:
    """The shapes of a client's part; an axis behind its own may be that of all clients."""
    shapes = [x.shape[1:] for x in jax.tree.leaves(state.clients)]
    return [tuple("C" if n == clients else n for n in shape) for shape in shapes]


def check_no_key(factory: AlgorithmFactory) -> None:
    """No random key is in the state."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(traced(factory).state):
        require(
            not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key),
            f"{tree.path(path)} of the state is a random key: take it from the round's key, by "
            "jaxfl.core.streams.stream, so that a resumed run gives the same bits",
        )


def check_streams(factory: AlgorithmFactory) -> None:
    """No two streams of a round share a key for any client.

    In the program of a round its key makes streams by number, and only streams get ids. A stream
    into which a number is folded beside ids would share a key with the client of that id, as would
    a stream that serves two trainings or two uploads.
    """
    begin, proceed, *_ = traced(factory)
    names = typing.get_args(Stream)
    for program, of_init in ((begin, True), (proceed, False)):
        uses = lineages(program, [0])
        for lineage, step in uses:
            require(
                lineage != () or of_init or type(step) is int,
                f"the round's key is used as it is ({step}): take a stream of it, "
                "jaxfl.core.streams.stream(key, name)",
            )
        for (lineage, step), often in uses.items():
            if len(lineage) == 1 and step == "ids":
                name = names[lineage[0]]
                require(
                    not any(of == lineage and type(other) is int for of, other in uses),
                    f"a number is folded into the stream {name!r}, which has a key for each client",
                )
                require(
                    often == 1 or name == "evaluate",
                    f"the stream {name!r} serves {often} computations of the clients, which draw "
                    "the same numbers: take a stream for each",
                )


RULES = (
    check_shapes,
    check_augmentation,
    check_offers,
    check_top_edges,
    check_start,
    check_variants,
    check_losses,
    check_client_axis,
    check_no_key,
    check_streams,
)
