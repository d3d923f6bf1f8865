"""What every algorithm of the registry owes, whatever it is: no test here knows a name.

The rules are those that `jaxfl.testing` gives to authors of methods; the tests beside them look at
devices, processes and programs as shipped.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import children
import jax
import numpy as np
import pytest
from toys import (
    close,
    deployed,
    equal,
    half,
    made,
    make_evaluate,
    normed,
    once,
    pick,
    run,
    shallow,
    unpadded,
)

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import facts_of
from jaxfl.simulation import mesh
from jaxfl.testing import RULES, failures, learning, messages, program, results
from jaxfl.testing.federations import C, padded, uneven
from jaxfl.training.batch_statistics import statistics


def test_a_round_keeps_shapes_and_dtypes(factory):
    program.check_shapes(factory)


def test_inputs_are_augmented_as_they_are_given(factory):
    program.check_augmentation(factory)


def test_a_method_says_whether_it_offers_mixtures_that_clients_may_refuse(factory):
    program.check_offers(factory)


def test_a_method_says_whether_its_graph_may_be_limited_to_the_largest_weights(factory):
    program.check_top_edges(factory)


def test_a_method_says_whether_its_clients_start_from_the_server(factory):
    program.check_start(factory)


@pytest.mark.long
def test_what_a_method_says_of_itself_holds_under_each_of_its_options(factory):
    program.check_variants(factory)


def test_every_upload_of_a_round_can_be_lost(factory):
    program.check_losses(factory)


def test_client_state_has_the_client_axis_first(factory):
    program.check_client_axis(factory)


def test_no_key_in_the_state(factory):
    program.check_no_key(factory)


def test_no_two_streams_of_a_round_share_a_key_for_any_client(factory):
    program.check_streams(factory)


@pytest.mark.long
def test_a_round_of_lonely_clients_and_their_messages_is_the_round(factory):
    messages.check_alone(factory)


@pytest.mark.long
def test_a_method_says_whether_clients_send_and_whether_models_are_personal(factory):
    """The facts on the methods' page are those of the messages."""
    messages.check_told(factory)


@pytest.mark.long
def test_nothing_is_learned_from_a_message_that_was_lost(factory):
    messages.check_lost(factory)


@pytest.mark.long
def test_a_scan_traces_a_round_once_and_gives_what_single_rounds_give_in_chunks_or_not(factory):
    results.check_scan(factory)


@pytest.mark.long
def test_padding_changes_nothing(factory):
    results.check_padding(factory)


@pytest.mark.long
def test_relabelling_clients_relabels_the_result(factory):
    results.check_relabelling(factory)


@pytest.mark.long
def test_four_rounds_are_two_restored_and_two_more(factory):
    results.check_resume(factory)


@pytest.mark.long
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(factory):
    results.check_seeds(factory)


@pytest.mark.long
def test_seeds_and_float_hyper_parameters_run_side_by_side(factory):
    results.check_vmap(factory)


@pytest.mark.long
def test_clients_out_of_the_cohort_are_left_alone(factory):
    results.check_absence(factory)


@pytest.mark.long
def test_weights_are_row_stochastic(factory):
    results.check_rows(factory)


def test_who_mixes_also_sends_and_who_sends_is_counted(factory):
    results.check_floats(factory)


@pytest.mark.long
def test_one_lie_is_felt_wherever_clients_mix_and_leaves_everything_finite(factory):
    failures.check_lie(factory)


@pytest.mark.long(every=16)
@pytest.mark.parametrize("rubbish", [np.nan, np.inf])
def test_what_is_not_finite_reaches_nobody(factory, rubbish):
    """A client whose update is NaN or inf is named, and left out until it is finite again."""
    failures.check_not_finite(factory, rubbish)


@pytest.mark.long
def test_an_upload_whose_squares_overflow_counts_as_not_finite(factory):
    failures.check_overflow(factory)


@pytest.mark.long(every=4)
def test_where_nobody_reports_everything_stays_finite(factory):
    failures.check_silence(factory)


@pytest.mark.long
def test_clients_train_by_the_weights_of_their_examples(factory):
    learning.check_example_weights(factory)


@pytest.mark.long
def test_equal_clients_all_reach_the_common_optimum(factory):
    learning.check_optimum(factory)


@pytest.mark.long
def test_opposite_groups_need_personal_models(factory):
    learning.check_groups(factory)


@pytest.mark.long
def test_clients_never_seen_or_long_away_deploy_what_the_server_knows_now(factory):
    learning.check_newcomers(factory)


@pytest.mark.long
def test_a_client_with_one_example(factory):
    failures.check_one_example(factory)


def test_every_rule_is_tested_here():
    source = Path(__file__).read_text()
    assert [rule.__name__ for rule in RULES if f".{rule.__name__}(factory" not in source] == []


@pytest.mark.long
def test_neither_four_devices_nor_padding_changes_anything(factory):
    """Six clients leave a gap on four devices."""
    algorithm = made(factory, shallow)
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = run(algorithm, mesh.place(padded()), 1)
    close(run(algorithm, uneven(), 1), spread, 1e-6)


@pytest.mark.slow(seconds=70)
@pytest.mark.parametrize("every", [20, 1])
def test_two_processes_give_what_one_gives(tmp_path, every):
    """One round of every twentieth algorithm, or of each; two processes share the clients."""
    out = tmp_path / "leaves.npz"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    program = Path(__file__).parents[1] / "two_processes.py"
    # They must not use this cache: of its programs process 0 alone would have some, and they hung.
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    running = [
        subprocess.Popen(
            [sys.executable, program, coordinator, str(process), out, str(every)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    errors = [said for _, said in children.end(running, 1800)]
    assert [process.returncode for process in running] == [0, 0], errors
    with np.load(out, allow_pickle=False) as together:
        for name in list(ALGORITHMS)[::every]:
            state, info, _ = run(made(ALGORITHMS[name], shallow), uneven(), 1)
            for number, leaf in enumerate(jax.tree.leaves((state, info))):
                found = together[f"{name}/{number:03}"]
                np.testing.assert_allclose(
                    found, np.asarray(leaf), rtol=1e-6, atol=1e-6, err_msg=name
                )


@pytest.mark.slow
def test_padding_changes_no_bit_of_programs_as_shipped(factory):
    algorithm = made(factory, shallow)
    equal(run(algorithm, uneven(), 2, exact=True), run(algorithm, padded(), 2, exact=True))


@once
def by_rows():
    """The same again, each example stored once and read by row number."""
    return unpadded(uneven())


@pytest.mark.long
def test_examples_that_are_read_by_row_number_change_nothing(factory):
    algorithm = made(factory, shallow)
    found = run(algorithm, by_rows(), 2, participation=half(C))
    close(found, run(algorithm, uneven(), 2, participation=half(C)), 1e-6)


@pytest.mark.slow
def test_examples_that_are_read_by_row_number_change_no_bit_of_programs_as_shipped(factory):
    algorithm = made(factory, shallow)
    one = run(algorithm, uneven(), 2, exact=True)
    equal(one, run(algorithm, by_rows(), 2, exact=True))
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = run(algorithm, mesh.place(by_rows()), 1, exact=True)
        equal(spread, run(algorithm, mesh.place(uneven()), 1, exact=True))


@pytest.mark.long
def test_batch_statistics_and_dropout_keep_the_contract(factory):
    """With both, padding changes nothing, every number is finite, and personal norms differ.

    Statistics stay those of inputs near 1: a penalty does not push them.
    """
    algorithm = made(factory, normed)
    state, info, _ = run(algorithm, uneven(), 2)
    close((state, info), run(algorithm, padded(), 2)[:2], 1e-4)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state, info)))
    scores = make_evaluate(algorithm, normed())(jax.random.key(0), uneven(), state, np.arange(C))
    assert np.isfinite(scores.deployed.test).all()
    models = deployed(algorithm, state, C, uneven())
    assert all(np.abs(x).max() < 10 for x in jax.tree.leaves(statistics(models)))
    if facts_of(factory).personal.startswith("the normalisation"):
        own = pick(state.clients.memory, np.arange(C))["batch_stats"]["BatchNorm_0"]["mean"]
        assert np.ptp(own, axis=0).max() > 1e-3
