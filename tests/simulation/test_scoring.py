"""The rules by which published tables make a score, against loops written from the papers."""

import numpy as np
import pytest

from jaxfl.simulation import scoring


def clients(rng, evaluations=14, number=5):
    """Scores of a run: half of the clients take part in an evaluation."""
    arrays = {
        f"{stage}_{part}": rng.random((evaluations, number))
        for stage in ("deployed", "trained")
        for part in ("val", "test")
    }
    away = rng.random((evaluations, number)) < 0.5
    away[:, 0] = False
    for scores in arrays.values():
        scores[away] = np.nan
    return arrays | {"sizes": rng.integers(1, 100, number)}


def test_each_client_has_its_test_score_where_its_validation_score_is_best():
    arrays = clients(np.random.default_rng(0))
    for stage, parts in (
        ("deployed", ["deployed"]),
        ("trained", ["trained"]),
        ("both", ["deployed", "trained"]),
    ):
        chosen = []
        for client in range(5):
            candidates = [
                (arrays[f"{part}_val"][e, client], arrays[f"{part}_test"][e, client])
                for part in parts
                for e in range(14)
                if not np.isnan(arrays[f"{part}_val"][e, client])
            ]
            chosen.append(max(candidates)[1])
        found = scoring.numbers(arrays, "selected_on_val", stage)
        np.testing.assert_array_equal(found, chosen)
        assert scoring.score(arrays, "selected_on_val", stage) == pytest.approx(np.mean(chosen))


def test_of_equal_validation_scores_the_first_in_time_counts():
    """In a round the clients train first, then the server answers."""
    arrays = {"deployed_val": [[0.5], [0.9]], "deployed_test": [[0.1], [0.2]]}
    arrays |= {"trained_val": [[0.9], [0.9]], "trained_test": [[0.3], [0.4]]}
    arrays = {name: np.array(values) for name, values in arrays.items()}
    found = scoring.numbers(arrays | {"sizes": np.ones(1)}, "selected_on_val", "both")
    assert found == [0.3]


def test_several_seeds_are_scored_each():
    rng = np.random.default_rng(4)
    seeds = [clients(rng) for _ in range(3)]
    stacked = {name: np.stack([one[name] for one in seeds]) for name in seeds[0]}
    for rule in scoring.RULES:
        expected = [scoring.score(one, rule, "trained") for one in seeds]
        assert scoring.scores(stacked, rule, "trained") == expected
        assert scoring.scores(seeds[0], rule, "trained") == expected[:1]


def test_the_mean_of_the_last_ten_rounds_is_over_the_participants_of_each():
    arrays = clients(np.random.default_rng(1))
    rounds = []
    for e in range(4, 14):
        there = [s for s in arrays["trained_test"][e] if not np.isnan(s)]
        rounds.append(sum(there) / len(there))
    assert scoring.score(arrays, "last_ten", "trained") == pytest.approx(sum(rounds) / 10)


def test_the_best_round_counts_examples_not_clients():
    """Sum of correct answers over the sum of examples, as PFLlib counts, and the best round."""
    arrays = clients(np.random.default_rng(2))
    best = 0.0
    for e in range(14):
        there = ~np.isnan(arrays["deployed_test"][e])
        correct = (arrays["deployed_test"][e] * arrays["sizes"])[there].sum()
        best = max(best, correct / arrays["sizes"][there].sum())
    assert scoring.score(arrays, "best_round", "deployed") == pytest.approx(best)


def test_a_run_without_scores_has_none():
    arrays = {name: np.full((3, 2), np.nan) for name in ("deployed_val", "deployed_test")}
    for rule in scoring.RULES:
        assert np.isnan(scoring.score(arrays | {"sizes": np.ones(2)}, rule, "deployed")), rule


@pytest.mark.parametrize("rule", sorted(scoring.RULES))
def test_newcomers_do_not_count(rule):
    arrays = clients(np.random.default_rng(4))
    newcomers = np.array([False, True, False, False, True])
    for name in arrays.keys() - {"sizes"}:
        arrays[name][:, newcomers] = 2.0
    others = {name: values[..., ~newcomers] for name, values in arrays.items()}
    found = scoring.score(arrays | {"unseen": newcomers}, rule, "both")
    assert found == scoring.score(others, rule, "both")
    assert found != scoring.score(arrays, rule, "both")


def test_the_scores_of_single_clients_are_those_of_the_evaluations_that_a_rule_takes():
    arrays = clients(np.random.default_rng(3))
    test, sizes = arrays["trained_test"], arrays["sizes"]
    there = ~np.isnan(test)
    for client, found in enumerate(scoring.by_client(arrays, "last_ten", "trained")):
        known = [score for score in test[-10:, client] if not np.isnan(score)]
        assert found == pytest.approx(sum(known) / len(known))
    means = [(test[e] * sizes)[there[e]].sum() / sizes[there[e]].sum() for e in range(14)]
    best = scoring.by_client(arrays, "best_round", "trained")
    np.testing.assert_array_equal(best, test[means.index(max(means))])
    for rule in ("selected_on_val", "last"):
        found = scoring.by_client(arrays, rule, "trained")
        np.testing.assert_array_equal(found, scoring.numbers(arrays, rule, "trained"))
