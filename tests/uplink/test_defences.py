"""Defences: what the server does to uploads, and clients that refuse what the server offers."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import close, deployed, equal, jit, linear, made, opposite_groups, quick_key, run

from jaxfl.algorithms import ALGORITHMS, fedamp, heurfedamp, local, pfedgat, pfedgraph, sfl
from jaxfl.cli import main
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.types import Cohort
from jaxfl.experiment import Setting, build, gather, load_config, resolve
from jaxfl.experiment.config import Config
from jaxfl.experiment.config.json_text import to_json
from jaxfl.experiment.privacy.audit import audit
from jaxfl.kernels.robust import foolsgold
from jaxfl.training.acceptance import accept_validated
from jaxfl.training.objectives import data_loss
from jaxfl.uplink import (
    attack,
    chain,
    clip_to_median,
    deduplicate,
    defence_links,
    gaussian,
    shorten_sybils,
)

KEY = quick_key(0)
RNG = np.random.default_rng(1)
M = 6
BEFORE = {"w": jnp.asarray(RNG.normal(size=(M, 5, 4)), jnp.float32)}
STEPS = RNG.normal(size=(M, 5, 4)).astype(np.float32)
IDS = jnp.arange(M)


def steps_after(uplink, steps, before=BEFORE):
    """The updates that the server reads [M, 5, 4] where clients made these steps."""
    received = jit(uplink)(KEY, before, {"w": before["w"] + steps}, IDS)
    return np.asarray(received["w"] - before["w"])


def test_updates_are_cut_to_the_median_norm_of_the_finite_ones():
    steps = STEPS.copy()
    steps[0] *= 1000
    steps[5] = np.nan
    norms = np.linalg.norm(steps.reshape(M, -1), axis=1)
    bound = np.median(norms[:5])
    expected = steps * np.minimum(1, bound / norms)[:, None, None]
    found = steps_after(clip_to_median, steps)
    np.testing.assert_allclose(found[:5], expected[:5], atol=1e-5)
    assert np.isnan(found[5]).any()


@pytest.mark.slow
@pytest.mark.parametrize("broken", [np.nan, np.inf, 3e38, 1e16])
def test_a_client_whose_upload_is_not_finite_has_not_reported_whatever_the_defences(broken):
    steps = STEPS.copy()
    steps[2, 1, 1] = broken
    steps[4] = STEPS[1]
    task = linear(defence=chain(*defence_links(("clip", "deduplicate"))))
    after = {"w": BEFORE["w"] + steps}
    received, reported = task.upload(KEY, BEFORE, after, IDS)
    assert reported.tolist() == [True, True, False, True, True, True]
    np.testing.assert_array_equal(received["w"][2], BEFORE["w"][2])


def test_updates_with_a_near_copy_count_as_none_and_the_others_stay():
    """Copies may have any length, and start from different models."""
    steps = STEPS.copy()
    steps[3] = 10 * steps[1] + 0.01 * STEPS[0]
    found = steps_after(deduplicate(), steps)
    np.testing.assert_array_equal(found[[1, 3]], 0)
    np.testing.assert_allclose(found[[0, 2, 4, 5]], steps[[0, 2, 4, 5]], atol=1e-5)
    opposite = STEPS.copy()
    opposite[3] = -opposite[1]
    opposite[4] = 0
    opposite[5] = 0
    np.testing.assert_allclose(steps_after(deduplicate(), opposite), opposite, atol=1e-5)
    with pytest.raises(InputError, match=r"threshold is 2.0: expected a number in \[0, 1\]"):
        deduplicate(2.0)


def foolsgold_by_loops(updates):
    """Algorithm 1 of the paper with kappa = 1, as its authors' program computes it."""
    count = len(updates)
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    cosines = units @ units.T - np.eye(count)
    nearest = cosines.max(axis=1)
    for i in range(count):
        for j in range(count):
            if i != j and nearest[i] < nearest[j]:
                cosines[i, j] *= nearest[i] / nearest[j]
    alpha = np.clip(1 - cosines.max(axis=1), 0, 1)
    alpha = np.minimum(alpha / alpha.max(), 0.99)
    with np.errstate(divide="ignore"):
        return np.clip(np.log(alpha / (1 - alpha)) + 0.5, 0, 1)


def test_updates_that_are_more_alike_than_all_others_are_shortened_as_in_the_paper():
    steps = STEPS.copy()
    aim = RNG.normal(size=(5, 4)).astype(np.float32)
    steps[3:5] = aim + 0.3 * RNG.normal(size=(2, 5, 4)).astype(np.float32)
    steps[0] += 0.5 * steps[1]
    factors = foolsgold_by_loops(steps.reshape(M, -1).astype(float))
    assert factors[3:5].max() < 0.1
    assert factors.max() == 1
    expected = factors[:, None, None] * steps
    np.testing.assert_allclose(steps_after(shorten_sybils, steps), expected, atol=1e-4)
    # One that is not finite stays what it is, and the others are as without it.
    steps[5] = np.nan
    factors = foolsgold_by_loops(steps[:5].reshape(5, -1).astype(float))
    found = steps_after(shorten_sybils, steps)
    np.testing.assert_allclose(found[:5], factors[:, None, None] * steps[:5], atol=1e-4)
    assert np.isnan(found[5]).all()


@pytest.mark.slow
def test_updates_that_are_unlike_all_others_stay():
    """Also where the cosines of an update are negative, to all others."""
    opposed = np.array([[-3, 0.2, 0.1], [1, 1.5, 0], [1, -1.4, 0.3], [1, 0.1, 1.6]])
    drawn = np.random.default_rng(0).normal(size=(20, 4, 5))
    units = drawn / np.linalg.norm(drawn, axis=2, keepdims=True)
    cosines = units @ units.swapaxes(1, 2)
    expected = np.array([foolsgold_by_loops(updates) for updates in drawn])
    assert (np.where(np.eye(4, dtype=bool), -1, cosines).max(axis=2) < 0).any()
    factors = jax.vmap(foolsgold, (0, None))(jnp.asarray(cosines, jnp.float32), jnp.ones(4, bool))
    np.testing.assert_allclose(factors, expected, atol=1e-4)
    factors = foolsgold_by_loops(opposed)
    assert factors[0] == 1
    updates = jnp.asarray(opposed, jnp.float32)
    received = shorten_sybils(KEY, jnp.zeros((4, 3)), updates, jnp.arange(4))
    np.testing.assert_allclose(received, factors[:, None] * opposed, atol=1e-5)


@pytest.mark.parametrize("size", range(1, 9))
def test_updates_that_are_all_alike_count_as_none_whatever_their_rounding(size):
    updates = jnp.tile(jnp.array([0.3, 0.7, 0.2, 1, 1, 1, 1, 1])[:size], (3, 1))
    assert not shorten_sybils(KEY, jnp.zeros((3, size)), updates, jnp.arange(3)).any()


@pytest.mark.slow
def test_updates_that_count_as_none_have_the_derivative_0():
    updates = jnp.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 3.0, 0.0]])

    def total(x):
        return shorten_sybils(KEY, jnp.zeros((3, 3)), x, jnp.arange(3)).sum()

    np.testing.assert_array_equal(jax.grad(total)(updates), [[0] * 3, [0] * 3, [1] * 3])


def test_clipping_comes_before_the_search_for_copies():
    names = ("deduplicate", "clip")
    assert [getattr(x, "__name__", "") for x in defence_links(names)] == [
        "clip_to_median",
        "uplink",
    ]
    assert defence_links(("accept",)) == []
    with pytest.raises(InputError, match="unknown defence 'clipp': did you mean clip"):
        defence_links(("clipp",))


def opinion(task, data, own, offered):
    """The models that clients take [C, ...], and who accepted."""
    cohort = Cohort(jnp.arange(6), data.train, data.val)
    return jit(task.accept)(own, offered, cohort)


@pytest.mark.slow
def test_a_client_keeps_its_own_model_where_the_offered_one_is_worse_on_validation_data():
    data = opposite_groups()
    task = linear(acceptance="validated")
    good, bad = trained_pair(task, data)
    own = tree.choose(jnp.arange(6) < 3, good, bad)
    offered = tree.choose(jnp.arange(6) < 3, bad, good)
    taken, accepted = opinion(task, data, own, offered)
    assert accepted.tolist() == [False] * 3 + [True] * 3
    equal(taken, good)
    # An equal model is accepted.
    assert opinion(task, data, good, good)[1].all()


def trained_pair(task, data):
    """Models of clients that fit their own data, and models of the opposite group."""
    models = task.trainer(data_loss(task.problem))(
        KEY,
        tree.broadcast(task.problem.init(KEY), 6),
        None,
        Cohort(jnp.arange(6), data.train, data.val),
    ).params
    return models, tree.take(models, jnp.array([1, 0, 3, 2, 5, 4]))


@pytest.mark.slow
def test_an_offer_that_is_not_finite_is_refused_and_a_client_without_validation_data_takes_any():
    data = opposite_groups()
    data = data._replace(val=data.val._replace(mask=data.val.mask.at[:2].set(False)))
    task = linear(acceptance="validated")
    good, bad = trained_pair(task, data)
    assert opinion(task, data, good, bad)[1].tolist() == [True, True] + [False] * 4
    broken = jax.tree.map(lambda x: x.at[jnp.array([0, 3])].set(jnp.nan), good)
    taken, accepted = opinion(task, data, good, broken)
    assert accepted.tolist() == [False, True, True, False, True, True]
    equal(taken, good)
    # A client whose own model is broken takes a finite offer, even a bad one.
    _, accepted = opinion(task, data, broken, bad)
    assert accepted.tolist() == [True, True, False, True, False, False]


@pytest.mark.slow
def test_by_default_every_client_takes_what_it_is_offered_and_nothing_is_computed():
    data = opposite_groups()
    task = linear()
    good, bad = trained_pair(task, data)
    taken, accepted = task.accept(good, bad, Cohort(jnp.arange(6), data.train, data.val))
    assert taken is bad
    assert accepted.all()


FACTORIES = {
    "pfedgraph": pfedgraph,
    "pfedgat": pfedgat,
    "fedamp": fedamp,
    "heurfedamp": heurfedamp,
    "sfl": sfl,
}
# Options without which a client that refuses is still regularised.
ALONE = {"pfedgraph": {"lam": 0.0}, "sfl": {"lam": 0.0}}
ATTACKED = attack("boost", np.array([False] * 5 + [True]), 30.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pfedgraph", "pfedgat", "sfl"])
def test_with_acceptance_no_attack_makes_a_client_clearly_worse_on_validation_data(name):
    """Worse than its own training made it, which is seen where all start from one model."""
    data = opposite_groups()
    factory = partial(FACTORIES[name], **ALONE.get(name, {}))
    defending = factory(linear(uplink=ATTACKED, acceptance="validated"))
    state, info, _ = run(defending, data, 1)
    undefended, _, _ = run(factory(linear(uplink=ATTACKED)), data, 1)
    alone, _, _ = run(made(local), data, 1)
    refused = (np.asarray(info.weights)[0] == np.eye(6)).all(axis=1)[:5]
    models = (
        alone.clients.memory,
        *(deployed(defending, one, 6) for one in (state, undefended)),
    )
    trained, taken, offered = (losses(one, data)[:5] for one in models)
    assert refused.any()
    assert not refused.all()
    np.testing.assert_allclose(taken, np.where(refused[:, None], trained, offered), atol=1e-3)
    difference = (offered - trained).mean(axis=1)
    error = (offered - trained).std(axis=1) / np.sqrt(offered.shape[1])
    np.testing.assert_array_equal(refused, difference > error)


@pytest.mark.long
@pytest.mark.parametrize("name", ["fedamp", "heurfedamp"])
def test_a_client_that_refuses_its_mixture_has_a_row_of_the_identity(name):
    data = opposite_groups()
    factory = FACTORIES[name]
    _, info, _ = run(factory(linear(uplink=ATTACKED, acceptance="validated")), data, 2)
    _, undefended, _ = run(factory(linear(uplink=ATTACKED)), data, 2)
    refused = (np.asarray(info.weights)[1] == np.eye(6)).all(axis=1)
    mixed = (np.asarray(undefended.weights)[1] != np.eye(6)).any(axis=1)
    assert (refused & mixed).any()


def losses(models, data):
    """The cross-entropy of each client's model on each of its validation examples, in NumPy."""
    layer = models["params"]["Dense_0"]
    logits = np.einsum("cnf,cfk->cnk", data.val.x, layer["kernel"]) + layer["bias"][:, None]
    logits = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    every = -np.take_along_axis(logits, np.asarray(data.val.y)[..., None], axis=2)[..., 0]
    kept = np.asarray(data.val.mask)
    assert (kept.sum(axis=1) == kept[0].sum()).all()
    return every[:, kept[0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTORIES)
def test_where_every_offer_is_refused_a_client_goes_on_with_what_it_trained(name):
    """It then trains alone; with sfl it does so in the first round, and then starts at the mean."""
    data = opposite_groups()

    def refuse(own, offered, cohort):
        return own, jnp.zeros(cohort.ids.size, bool)

    rounds = 1 if name == "sfl" else 2
    algorithm = FACTORIES[name](linear()._replace(accept=refuse), **ALONE.get(name, {}))
    state, info, _ = run(algorithm, data, rounds)
    np.testing.assert_array_equal(info.weights, np.tile(np.eye(6), (rounds, 1, 1)))
    alone, _, _ = run(made(local), data, rounds)
    close(deployed(algorithm, state, 6), alone.clients.memory, tolerance=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("defend", [("clip",), ("deduplicate",), ("foolsgold",), ("accept",)])
def test_defences_follow_a_relabelling_and_work_with_some_of_the_clients(defend):
    data = opposite_groups()
    poison = attack("collude", np.array([False] * 4 + [True] * 2))
    task = linear(
        uplink=chain(poison, *defence_links(defend)),
        acceptance="validated" if "accept" in defend else "always",
    )
    some = jnp.array([0, 2, 5])

    def cohort_of(order):
        return Cohort(some[order], *(tree.take(x, some[order]) for x in (data.train, data.val)))

    algorithm = pfedgraph(task)
    state = algorithm.init(KEY, data.train)
    found = []
    for order in (jnp.arange(3), jnp.array([2, 0, 1])):
        before = state._replace(clients=tree.take(state.clients, some[order]))
        after, _ = jit(algorithm.round)(KEY, before, cohort_of(order))
        found.append(tree.take(after.clients, jnp.argsort(order)))
    close(*found, tolerance=1e-5)


@pytest.mark.slow
def test_defences_are_vmapped_over_seeds():
    data = opposite_groups()
    task = linear(
        uplink=chain(clip_to_median, deduplicate()),
        acceptance="validated",
    )
    algorithm = pfedgraph(task)

    def two_rounds(key):
        return run(algorithm, data, 1, key=key)[0].clients.memory.model

    keys = jax.random.split(KEY, 2)
    many = jax.vmap(two_rounds)(keys)
    close(jax.tree.map(lambda x: x[1], many), two_rounds(keys[1]), tolerance=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", FACTORIES)
def test_with_acceptance_noise_alone_does_not_seal_a_client(name):
    """But which model a client took tells of them, so the audit says that noise is not enough.

    A client that keeps its own model trains from what it never sent with noise, and the update that
    follows is measured from there. Only with sfl does everybody start from the mean nevertheless.
    """
    data = opposite_groups()
    noisy = gaussian(1.0, 1.0)
    options = {"wire": "gradient"} if name == "pfedgat" else {}
    always = audit(FACTORIES[name], linear(uplink=noisy), options, data)
    validated = audit(FACTORIES[name], linear(uplink=noisy, acceptance="validated"), options, data)
    assert always.sealed == (name not in ("fedamp", "heurfedamp"))
    assert validated.sealed == (name == "sfl")


def test_acceptance_without_validation_data_is_refused():
    config = Config(
        algorithm="pfedgraph",
        partition="iid",
        clients=3,
        val=0.0,
        rounds=1,
        local_steps=1,
        defend=("accept",),
    )
    resolved = resolve(config)
    with pytest.raises(InputError, match="no client has validation data, choose a larger --val"):
        build(resolved, gather(resolved))


def test_the_options_of_attacks_and_defences_are_checked_and_read_back(tmp_path):
    defended = Config(
        attack="mimic", attack_scale=10.0, defend=("clip", "deduplicate"), algorithm="pfedgraph"
    )
    file = tmp_path / "config.json"
    file.write_text(to_json(defended))
    assert json.loads(file.read_text())["defend"] == ["clip", "deduplicate"]
    assert load_config(file) == defended
    file.write_text('{"algorithm": "fedavg", "defend": "clip"}')
    with pytest.raises(InputError, match=r"defend in .* is 'clip': expected a list of names"):
        load_config(file)
    with pytest.raises(InputError, match="unknown defence 'clipp': did you mean clip"):
        Setting(defend=("clipp",))
    with pytest.raises(
        InputError, match=r"scale of --attack is 2.0, and has no effect without --att"
    ):
        resolve(Config(attack_scale=2.0))
    with pytest.raises(
        InputError, match=r"scale of --attack is 2.0, and has no effect without --att"
    ):
        resolve(Config(attack="gauss", attack_scale=2.0))


def test_the_command_line_takes_several_defences(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    short = ["--clients", "3", "--partition", "iid", "--rounds", "1", "--local-steps", "1"]
    assert main(["run", "fedavg", *short, "--defend", "clip", "accept", "--out", "x"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "--defend accept: fedavg offers no mixture that a client could refuse" in told
    named = told.partition("could refuse, choose ")[2].partition(", or leave")[0]
    offering = {name for name, of in ALGORITHMS.items() if facts_of(of).offers_mixture}
    assert set(named.replace(" or ", ", ").split(", ")) == offering
    assert offering >= set(FACTORIES)
    assert "a method of your own says so by offers_mixture=True" in told
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_validated_acceptance_counts_deployed_predictions():
    """The model's recall is applied, and dropout is not."""
    data = opposite_groups()
    task = linear()
    seen = []

    def recall(params, train):
        seen.append(train.x.shape)
        return jax.tree.map(lambda x: 0 * x, params)

    accept = accept_validated(task.problem._replace(recall=recall), task.evaluate)
    good, bad = trained_pair(task, data)
    _, accepted = accept(good, bad, Cohort(jnp.arange(6), data.train, data.val))
    assert accepted.all()
    assert seen
