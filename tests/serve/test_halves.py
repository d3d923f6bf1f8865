"""The two halves of an exchange: padded rows, starts of updates, several exchanges in a round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from served import CLIENTS, EXAMPLE, alike, federation, method, serve, simulate
from toys import close, shallow

from jaxfl.algorithms import ALGORITHMS
from jaxfl.algorithms.steps.composition import compose
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Down, Exchange, Outcome, Report, ServerState, Up, Wire
from jaxfl.core.types import Cohort
from jaxfl.serve.forms import form_of
from jaxfl.serve.server import server_half

SERVED = sorted(name for name in ALGORITHMS if ALGORITHMS[name](shallow()).wire is not None)
# By default these make a number, or a graph, of the whole cohort, whoever reports.
OPTIONS = {
    "pfedgraph": {"alpha": 0.8},
    "gossip": {"graph": "complete"},
    "general_graph": {"alpha": 0.8},
    "learned_graph": {"alpha": 0.8},
}
# These start from all clients' examples, and are refused.
START_FROM_DATA = {"apple", "fedcollab", "gfedmtl"}
# These put every client that was asked into a cluster or a graph, as `make_rounds` does with one
# whose upload is lost: its row holds what the server last knew of it.
WHOLE = {"fedcedar", "fedsem", "push_sum"}


def uploads_of(algorithm, ids, key):
    """What clients send in the first exchange, and what the server knows [M, ...]."""
    wire = algorithm.wire
    memory, state = jax.jit(wire.init)(jax.random.key(1), federation().train)
    memory, record = tree.take((memory, state.record), ids)
    known = ServerState(state.server, record)
    train, val = tree.take((federation().train, federation().val), ids)
    cohort = Cohort(ids, train, val, jnp.int32(0))
    down = jax.jit(wire.download)(known)
    _, ups, _ = jax.jit(wire.exchanges[0].client)(key, memory, down, cohort)
    return known, (ups,) if isinstance(ups, Up) else ups, cohort.sizes


def rubbish_like(tables, rubbish):
    return jax.tree.map(lambda x: jnp.full_like(x, rubbish), tables)


@pytest.mark.long
@pytest.mark.sample(every=8)
@pytest.mark.parametrize("name", SERVED)
def test_no_result_depends_on_padded_rows(name):
    """Clients 1 and 4 have not reported: with rubbish in their rows, and without these rows."""
    algorithm = method(name, **OPTIONS.get(name, {}))
    if name in START_FROM_DATA:
        with pytest.raises(InputError, match="reads the data of all clients"):
            form_of(algorithm.wire, shallow().upload, EXAMPLE, CLIENTS, CLIENTS)
        return
    key, ids = jax.random.key(3), jnp.arange(CLIENTS)
    arrived = (ids != 1) & (ids != 4)
    there = jnp.flatnonzero(arrived)
    known, ups, sizes = uploads_of(algorithm, ids, key)

    def step(known, ups, ids, sizes, arrived, rubbish):
        wire = algorithm.wire
        form = form_of(wire, shallow().upload, EXAMPLE, CLIENTS, ids.size)
        half = server_half(wire, shallow().upload, form, EXAMPLE)
        # What has not arrived may be anything, but for the starts that the server knows.
        absent = tuple(
            rubbish_like(up, rubbish)._replace(
                before=up.before if start == "server" else rubbish_like(up.before, rubbish)
            )
            for up, start in zip(ups, form.exchanges[0].starts, strict=True)
        )
        ups = tree.choose(arrived, ups, absent)
        starts = tuple(up.before for up in absent)
        outcome, reported = half.steps[0](key, known, ups, starts, ids, sizes * arrived, arrived)
        state, reported = half.settle(known, outcome.state._replace(memo=None), reported)
        # A reply may say at which place of the cohort a client is.
        numbers = [x for x in jax.tree.leaves(outcome.reply.each) if x.dtype == jnp.float32]
        return state, numbers, reported

    padded = step(known, ups, ids, sizes, arrived, 0.0)
    rubbish = step(known, ups, ids, sizes, arrived, 1e6)
    rows = [tree.take((x[0].record, x[1], x[2]), there) for x in (padded, rubbish)]
    close((padded[0].server, rows[0]), (rubbish[0].server, rows[1]))
    if name in WHOLE:
        return
    alone = step(
        known._replace(record=tree.take(known.record, there)),
        *tree.take((ups, ids, sizes, arrived), there),
        0.0,
    )
    close((padded[0].server, rows[0]), (alone[0].server, (alone[0].record, *alone[1:])))


def two_steps(task):
    """Clients send a mean of their inputs, get the mean of all, and send how far theirs is."""

    def init(key, train):
        memory = jnp.zeros((len(train.mask), 8))
        return memory, ServerState(jnp.zeros(8), jnp.zeros(len(train.mask)))

    def first(key, memory, down, cohort):
        mean = (cohort.train.x * cohort.train.mask[..., None]).sum(1) / cohort.sizes[:, None]
        return memory + mean, Up(mean, memory), Report(jnp.zeros(len(mean)))

    def aggregate(key, state, uploads):
        step = uploads.received - uploads.before
        mean = (step * uploads.reported[:, None]).sum(0) / uploads.reported.sum()
        return Outcome(state._replace(server=mean, memo=mean), Down(mean, step))

    def second(key, memory, down, cohort):
        gap = memory - down.common[None] + down.each
        return gap, Up((), (), plain=jnp.abs(gap).sum(1)), Report()

    def measure(key, state, uploads):
        weights = jnp.eye(uploads.ids.size)
        state = ServerState(state.server + state.memo, uploads.plain)
        return Outcome(state, Down(jnp.float32(2)), weights)

    def last(key, memory, down, cohort):
        return memory * down.common, None, Report()

    exchanges = (Exchange(first, aggregate), Exchange(second, measure), Exchange(last))

    def deploy(memory, down, cohort):
        return tree.broadcast(task.problem.init(jax.random.key(0)), cohort.ids.size)

    return compose(task, Wire(init, exchanges, deploy))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no answer came in time from 1 of 6 clients")
def test_a_round_may_have_several_exchanges():
    """The second has no uplink; the first has a start that only the client knows."""
    algorithm = two_steps(shallow())
    form = form_of(algorithm.wire, shallow().upload, EXAMPLE, CLIENTS, CLIENTS)
    assert [each.starts for each in form.exchanges] == [("client",), ("server",)]

    def loses(number, ids):
        return (number == 1) & (ids == 3)

    def lost(kind, number, client):
        return kind == "train" and bool(loses(number, client))

    strategy, grid = serve(algorithm, 3, lost=lost)
    state, *_ = simulate(algorithm, 3, loses=loses)
    # In simulation what does not go through the uplink is not lost, so the record differs.
    reported = strategy.rounds[1].reported
    assert reported.tolist() == [True, True, True, False, True, True]
    close(strategy.progress.server, np.asarray(state.server))
    exchanges = [content["jaxfl"]["exchange"] for kind, _, content in grid.sent if kind == "train"]
    assert exchanges == [0] * 6 + [1] * 6 + [0] * 6 + [1] * 5 + [0] * 6 + [1] * 6


@pytest.mark.parametrize(
    ("name", "starts"), [("fedavg", "server"), ("ditto", "server"), ("pfedgraph", "nobody")]
)
def test_a_start_that_follows_from_the_download_is_not_sent(name, starts):
    form = form_of(method(name).wire, shallow().upload, EXAMPLE, CLIENTS, CLIENTS)
    assert form.exchanges[0].starts == (starts,)
    assert alike is not None
