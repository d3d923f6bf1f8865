"""Each rule of `jaxfl.testing` finds a method that breaks it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import jaxfl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import method
from jaxfl.core.messages import Exchange
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Scalar, State, Task
from jaxfl.testing import RULES, check_method, failures, learning, message_rules, program, results
from jaxfl.testing.federations import C
from jaxfl.testing.tasks import shallow
from jaxfl.training.batch_statistics import statistics


def broken(change, personal="", **facts):
    """FedAvg, changed by `change(algorithm, task)`."""

    @method(title="Broken", paper="a test", personal=personal, sends="its model", **facts)
    def broken(task: Task) -> Algorithm:
        return change(jaxfl.algorithms.fedavg(task), task)

    return broken


def with_info(change):
    """FedAvg whose `Info` is changed: `change(info, cohort)` has the fields that differ."""

    def of(algorithm, task):
        def round(key, state, cohort):
            after, info = algorithm.round(key, state, cohort)
            return after, info._replace(**change(info, cohort))

        return algorithm._replace(round=round)

    return of


def with_server(change):
    """FedAvg whose server's state is changed: `change(server, key, cohort)` is added to it."""

    def of(algorithm, task):
        def round(key, state, cohort):
            after, info = algorithm.round(key, state, cohort)
            number = change(key, cohort)
            server = jax.tree.map(lambda x: x + jnp.asarray(number, x.dtype), after.server)
            return State(after.clients, server), info

        return algorithm._replace(round=round)

    return of


def with_cohort(change):
    """FedAvg that sees another cohort."""

    def of(algorithm, task):
        def round(key, state, cohort):
            return algorithm.round(key, state, change(cohort))

        return algorithm._replace(round=round)

    return of


def with_state(first, clients=False):
    """FedAvg that keeps something more, `first(key, train)`, which no round changes."""

    def of(algorithm, task):
        def init(key, train):
            state = algorithm.init(key, train)
            further = first(key, train)
            if clients:
                return State((state.clients, further), state.server)
            return State(state.clients, (state.server, further))

        def split(state):
            further = state.clients[1] if clients else state.server[1]
            plain = State(
                state.clients[0] if clients else state.clients,
                state.server if clients else state.server[0],
            )
            return plain, further

        def round(key, state, cohort):
            plain, further = split(state)
            after, info = algorithm.round(key, plain, cohort)
            if clients:
                return State((after.clients, further), after.server), info
            return State(after.clients, (after.server, further)), info

        def models(state, cohort):
            return algorithm.models(split(state)[0], cohort)

        return algorithm._replace(init=init, round=round, models=models)

    return of


def half_precision(algorithm, task):
    def round(key, state, cohort):
        after, info = algorithm.round(key, state, cohort)
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16), after), info

    return algorithm._replace(round=round)


def other_shape(algorithm, task):
    """Trains on examples as columns too."""
    loss = jaxfl.objectives.data_loss(task.problem)

    def loss_of_columns(params, batch, anchor, key):
        return loss(params, batch._replace(x=batch.x[..., 0]), anchor, key)

    fit = task.trainer(loss_of_columns)

    def round(key, state, cohort):
        columns = cohort.train._replace(x=cohort.train.x[..., None])
        models = tree.broadcast(task.problem.init(jax.random.key(0)), C)
        fit(stream(key, "second_fit"), models, None, cohort._replace(train=columns))
        return algorithm.round(key, state, cohort)

    return algorithm._replace(round=round)


def twice(algorithm, task):
    """Two rounds with one key."""

    def round(key, state, cohort):
        return algorithm.round(key, algorithm.round(key, state, cohort)[0], cohort)

    return algorithm._replace(round=round)


def idle(algorithm, task):
    """Learns nothing from anybody."""

    def round(key, state, cohort):
        return state, algorithm.round(key, state, cohort)[1]

    return algorithm._replace(round=round)


def forgetful(algorithm, task):
    """Clients deploy zeros until they have taken part."""
    kept = with_state(lambda key, train: jnp.zeros(train.mask.shape[0]), clients=True)(
        algorithm, task
    )

    def round(key, state, cohort):
        after, info = kept.round(key, state, cohort)
        return State((after.clients[0], jnp.ones(cohort.ids.size)), after.server), info

    def models(state, cohort):
        return tree.scale(kept.models(state, cohort), state.clients[1][cohort.ids])

    return kept._replace(round=round, models=models)


def count_calls():
    """A number that is another one at each call, wherever the call comes from."""
    calls = []

    def count(_):
        calls.append(1)
        return np.float32(len(calls))

    def of(key, cohort):
        return io_callback(count, jax.ShapeDtypeStruct((), jnp.float32), cohort.sizes.sum())

    return of


def traces():
    """A number that is another one at each trace."""
    calls = []

    def of(key, cohort):
        calls.append(1)
        return float(len(calls))

    return of


@method(title="Branching", paper="a test", personal="", sends="its model")
def branching(task: Task, *, rate: Scalar = 0.5) -> Algorithm:
    algorithm = jaxfl.algorithms.fedavg(task)

    def round(key, state, cohort):
        return algorithm.round(key, state, cohort) if rate > 0.4 else (state, None)

    return algorithm._replace(round=round)


@method(title="Optional", paper="a test", personal="", sends="its model", starts_from_server=False)
def optional(task: Task, *, global_start: bool = False) -> Algorithm:
    return jaxfl.algorithms.fedavg(task) if global_start else jaxfl.algorithms.local(task)


def with_exchange(change):
    """FedAvg whose only exchange is changed: `change(exchange)`."""

    def of(algorithm, task):
        (exchange,) = algorithm.wire.exchanges
        return jaxfl.compose(task, algorithm.wire._replace(exchanges=(change(exchange),)))

    return of


def curious(exchange):
    """Clients look at the examples of all clients of the round."""

    def client(key, memory, down, cohort):
        memory, up, report = exchange.client(key, memory, down, cohort)
        mean = cohort.train.x.mean()
        return memory, up._replace(after=jax.tree.map(lambda x: x + mean, up.after)), report

    return exchange._replace(client=client)


def credulous(exchange):
    """Clients tell a number beside the model, and the server adds up what it has not received."""

    def client(key, memory, down, cohort):
        memory, up, report = exchange.client(key, memory, down, cohort)
        return memory, up._replace(plain=cohort.train.x[:, 0, 0]), report

    def server(key, state, uploads):
        outcome = exchange.server(key, state, uploads)
        total = uploads.plain.sum()
        model = jax.tree.map(lambda x: x + total, outcome.state.server)
        return outcome._replace(state=outcome.state._replace(server=model))

    return Exchange(client, server)


def trusting(exchange):
    """Clients tell how much they weigh, and the server believes them."""

    def client(key, memory, down, cohort):
        memory, up, report = exchange.client(key, memory, down, cohort)
        return memory, up._replace(plain=jnp.ones(cohort.ids.size)), report

    def server(key, state, uploads):
        outcome = exchange.server(key, state, uploads)
        shares = uploads.plain / uploads.plain.sum()
        return outcome._replace(weights=jnp.broadcast_to(shares, (C, C)))

    return Exchange(client, server)


def by_statistics(info, cohort):
    moved = sum(x.sum() for x in jax.tree.leaves(statistics(info.trained)))
    return {"weights": info.weights + 0.01 * moved}


def silence(info, cohort):
    return {"weights": info.weights / info.reported.any()}


def place(info, cohort):
    return {"loss": info.loss + jnp.arange(info.loss.size)}


def of_all_rows(key, cohort):
    return cohort.train.x.sum()


def of_size(key, cohort):
    return 1e-3 / (cohort.train.mask.sum(axis=1) - 1).min()


BREAKS = {
    program.check_shapes: (broken(half_precision), "bfloat16"),
    program.check_augmentation: (broken(other_shape), "of the shapes"),
    program.check_offers: (broken(lambda a, t: a, offers_mixture=True), "offers_mixture=False"),
    program.check_top_edges: (broken(lambda a, t: a, takes_top_edges=True), "takes_top_edges"),
    program.check_start: (broken(lambda a, t: a, starts_from_server=False), "starts_from_server"),
    program.check_variants: (optional, "does not hold with {'global_start': True}"),
    program.check_losses: (broken(with_cohort(lambda c: c._replace(lost=None))), "lost"),
    program.check_client_axis: (
        broken(with_state(lambda key, train: jnp.zeros(3), clients=True)),
        "expected the client axis first",
    ),
    program.check_no_key: (broken(with_state(lambda key, train: key)), "is a random key"),
    program.check_streams: (broken(twice), "the stream 'fit' serves 2 computations"),
    message_rules.check_alone: (broken(with_exchange(curious)), "make another round"),
    message_rules.check_told: (
        broken(lambda a, t: jaxfl.algorithms.local(t)),
        "a client sends 0 floats",
    ),
    message_rules.check_lost: (broken(with_exchange(credulous)), "would have told changes"),
    message_rules.check_numbers: (broken(with_exchange(trusting)), "and a weight is negative"),
    results.check_comparisons: (broken(with_info(by_statistics)), "other statistics of BatchNorm"),
    results.check_padding: (broken(with_server(of_all_rows)), "padding"),
    results.check_scan: (broken(with_server(traces())), "three rounds in one program"),
    results.check_relabelling: (broken(with_info(place)), "another order"),
    results.check_resume: (broken(with_server(count_calls())), "restored and whole"),
    results.check_seeds: (broken(with_server(count_calls())), "twice with one seed"),
    results.check_vmap: (branching, "branches on the value of an option (rate)"),
    results.check_rows: (
        broken(with_info(lambda info, cohort: {"weights": 2 * info.weights})),
        "sums to",
    ),
    results.check_floats: (
        broken(with_info(lambda info, cohort: {"up": 0 * info.up})),
        "expected a number above 0",
    ),
    failures.check_lie: (broken(idle), "a lying upload changes nothing"),
    failures.check_not_finite: (
        broken(with_server(lambda key, cohort: 0 * cohort.train.x[:, 0].sum())),
        "expected all but client 2",
    ),
    failures.check_overflow: (broken(with_server(count_calls())), "is not left out as NaN is"),
    failures.check_silence: (broken(with_info(silence)), "where nobody reports"),
    failures.check_one_example: (
        broken(with_info(lambda i, c: {"loss": i.loss + of_size(0, c)})),
        "is not finite",
    ),
    learning.check_example_weights: (
        broken(with_cohort(lambda c: c._replace(train=c.train._replace(weight=None)))),
        "change nothing",
    ),
    learning.check_optimum: (broken(idle), "a predicted probability is wrong by"),
    learning.check_groups: (
        broken(lambda a, t: a, personal="the model"),
        "clients deploy one model",
    ),
    learning.check_newcomers: (broken(forgetful), "that never took part"),
}


@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize("rule", BREAKS, ids=lambda rule: rule.__name__)
def test_each_rule_finds_a_method_that_breaks_it(rule):
    factory, words = BREAKS[rule]
    with pytest.raises(AssertionError) as error:
        check_method(factory, rules=[rule])
    message = str(error.value)
    assert message.startswith(f"{factory.__name__} breaks 1 of 1 rules:\n  {rule.__name__}: ")
    assert words in message
    assert message.count("\n") == 1


def test_clients_out_of_the_cohort_whose_state_changes_are_found(monkeypatch):
    """No method can reach them: `make_rounds` gives it the rows of the cohort alone."""
    method = broken(with_state(lambda key, train: jnp.arange(8.0), clients=True))

    def put(everybody, ids, rows):
        return jax.tree.map(lambda x: x + 1, everybody)

    monkeypatch.setattr(tree, "put", put)
    with pytest.raises(AssertionError, match="were not in the cohort"):
        check_method(method, rules=[results.check_absence])


def test_every_rule_has_a_method_that_breaks_it():
    assert set(RULES) == {*BREAKS, results.check_absence}


def test_a_method_without_messages_says_so_in_its_docstring():
    def silent(task):
        return jaxfl.algorithms.fedavg(task)._replace(wire=None)

    with pytest.raises(AssertionError, match="or write in its docstring"):
        check_method(silent, rules=[message_rules.check_told])
    silent.__doc__ = "It is not written as messages: a test."
    check_method(silent, rules=message_rules.RULES)


def test_all_broken_rules_are_named_and_the_others_looked_at():
    factory = broken(half_precision, offers_mixture=True)
    rules = [program.check_shapes, program.check_no_key, program.check_offers]
    with pytest.raises(AssertionError, match="breaks 2 of 3 rules") as error:
        check_method(factory, rules=rules)
    assert [line.split(":")[0].strip() for line in str(error.value).splitlines()[1:]] == [
        "check_shapes",
        "check_offers",
    ]


def test_options_reach_the_method_and_its_facts_stay():
    with pytest.raises(AssertionError, match="state starts_from_server=True"):
        check_method(optional, rules=[program.check_start], global_start=True)
    check_method(optional, rules=[program.check_start])


def test_an_error_of_the_method_has_a_note_of_the_rule():
    def wrong(algorithm, task):
        return algorithm._replace(round=lambda *arguments: 1 / 0)

    with pytest.raises(ZeroDivisionError) as error:
        check_method(broken(wrong), rules=[program.check_shapes])
    assert "check_shapes" in error.value.__notes__[-1]


@pytest.mark.usefixtures("without_types")
def test_an_algorithm_in_place_of_its_factory_is_refused():
    algorithm = jaxfl.algorithms.fedavg(shallow())
    with pytest.raises(InputError, match="expected its factory"):
        check_method(algorithm)
