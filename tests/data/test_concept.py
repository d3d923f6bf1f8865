"""Concepts: what each client trains on, validates with and is scored on; and the true groups."""

import sys

import numpy as np
import pytest
from toys import equal

from jaxfl.core.errors import InputError
from jaxfl.core.types import Pool
from jaxfl.data import concept as concepts
from jaxfl.data import (
    concept_of,
    federate,
    from_arrays,
    iid,
    label_permutations,
    load,
    nodes,
    pathological,
)
from jaxfl.data.concept import feature_noise, rotation, swapped_labels
from jaxfl.experiment.config import Config, Setting, resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import gather, true_groups
from jaxfl.experiment.session.make_program import compile_run
from jaxfl.experiment.session.run_program import records

SOURCE = load("digits")
CLIENTS = 8
PARTS = iid(SOURCE.y_train, CLIENTS, seed=0)


def rows_of(data, client):
    """The examples of a client that count, with their targets and weights."""
    x, y, mask = (np.asarray(leaf[client]) for leaf in (data.x, data.y, data.mask))
    return x[mask > 0], y[mask > 0], mask[mask > 0]


def turned(image, quarters):
    """A square image turned counterclockwise, pixel by pixel: the last column is the first row."""
    for _ in range(quarters):
        side = len(image)
        image = np.stack([[image[j, side - 1 - i] for j in range(side)] for i in range(side)])
    return image


@pytest.mark.parametrize(("groups", "quarters"), [(4, [0, 1, 2, 3]), (2, [0, 2])])
def test_rotation_turns_all_images_of_a_group_and_keeps_their_labels(groups, quarters):
    concept = rotation(SOURCE, CLIENTS, groups=groups)
    plain = federate(SOURCE, PARTS, test="own")
    changed = federate(SOURCE, PARTS, test="own", concept=concept)
    for before, after in zip(plain, changed, strict=True):
        np.testing.assert_array_equal(before.y, after.y)
        np.testing.assert_array_equal(before.mask, after.mask)
        assert after.x.dtype == np.uint8
        for client in range(CLIENTS):
            x, _, _ = rows_of(before, client)
            seen, _, _ = rows_of(after, client)
            for image, view in zip(x[:3], seen[:3], strict=True):
                np.testing.assert_array_equal(view, turned(image, quarters[client % groups]))


def test_swapped_labels_rename_the_labels_of_a_group_and_keep_the_images():
    concept = swapped_labels(SOURCE, CLIENTS, seed=5, groups=3)
    plain = federate(SOURCE, PARTS, test="own")
    changed = federate(SOURCE, PARTS, test="own", concept=concept)
    names = []
    for group in range(3):
        name = {}
        for client in range(group, CLIENTS, 3):
            for before, after in zip(plain, changed, strict=True):
                x, y, _ = rows_of(before, client)
                seen, named, _ = rows_of(after, client)
                np.testing.assert_array_equal(x, seen)
                for a, b in zip(y.tolist(), named.tolist(), strict=True):
                    assert name.setdefault(a, b) == b  # one name in all parts of all its clients
        assert sorted(name.values()) == sorted(name) == list(range(10))
        names.append([name[label] for label in range(10)])
    assert names[0] == list(range(10))
    assert len({tuple(name) for name in names}) == 3
    assert label_permutations(10, 3, seed=5).tolist() == names


@pytest.mark.parametrize("test", ["reweighted", "global"])
def test_each_client_is_scored_on_the_test_set_as_it_sees_it(test):
    """Images and labels are those of the shared test set, changed, with the same weights."""
    parts = pathological(SOURCE.y_train, 10, seed=0)
    plain = federate(SOURCE, parts, test=test)
    swap = label_permutations(10, 4, seed=1)
    for concept, quarters, names in [
        (rotation(SOURCE, 10), lambda client: client % 4, lambda client: np.arange(10)),
        (swapped_labels(SOURCE, 10, seed=1), lambda client: 0, lambda client: swap[client % 4]),
    ]:
        data = federate(SOURCE, parts, test=test, concept=concept)
        assert isinstance(plain.test, Pool)
        assert not isinstance(data.test, Pool)
        for client in range(10):
            weights = np.asarray(plain.test.weights[client])
            counting = np.flatnonzero(weights)
            x, y, mask = rows_of(data.test, client)
            np.testing.assert_allclose(mask, weights[counting], rtol=1e-6)
            np.testing.assert_array_equal(y, names(client)[SOURCE.y_test[counting]])
            image = SOURCE.x_test[counting[-1]]
            np.testing.assert_array_equal(x[-1], turned(image, quarters(client)))


def test_noise_grows_from_client_to_client_and_has_the_level_of_the_last():
    parts = iid(SOURCE.y_train, 5, seed=0)
    data = federate(SOURCE, parts, test="global", concept=feature_noise(SOURCE, 5, 0, level=0.2))
    plain = federate(SOURCE, parts, test="global")
    for client in range(5):
        expected = 16 * 0.2 * client / 4  # a digit's pixels are 0 to 16
        x, y, _ = rows_of(plain.train, client)
        seen, named, _ = rows_of(data.train, client)
        np.testing.assert_array_equal(y, named)
        noise = seen - x.astype(np.float32)
        assert abs(noise.mean()) <= 0.05 * expected
        np.testing.assert_allclose(noise.std(), expected, rtol=0.03)
        in_test = rows_of(data.test, client)[0] - SOURCE.x_test.astype(np.float32)
        np.testing.assert_allclose(in_test.std(), expected, rtol=0.03)
        size = min(noise.size, in_test.size)
        if client:  # other noise in train and test
            assert abs(np.corrcoef(noise.ravel()[:size], in_test.ravel()[:size])[0, 1]) < 0.05
    other = federate(SOURCE, parts, test="global", concept=feature_noise(SOURCE, 5, 1, level=0.2))
    assert (np.asarray(other.train.x) != np.asarray(data.train.x)).any()


def test_noise_on_numbers_has_their_unit_and_on_colour_images_that_of_a_byte():
    numbers = from_arrays(np.zeros((4000, 3), np.float32), np.arange(4000) % 2)
    concept = feature_noise(numbers, 2, level=0.5)
    x, _ = concept(1, numbers.x_train, numbers.y_train, "train")
    np.testing.assert_allclose(x.std(), 0.5, rtol=0.05)
    images = from_arrays(np.zeros((400, 4, 4, 3), np.uint8), np.arange(400) % 2)
    images = images._replace(shift=(125.0, 123.0, 114.0), scale=(51.0, 50.0, 51.0))
    x, _ = feature_noise(images, 2, level=0.1)(1, images.x_train, images.y_train, "train")
    np.testing.assert_allclose(x.std(), 25.5, rtol=0.05)


@pytest.mark.parametrize("test", ["reweighted", "own", "global"])
def test_feedback_that_leaks_is_a_copy_of_the_changed_test_set(test):
    concept = feature_noise(SOURCE, CLIENTS)
    data = federate(SOURCE, PARTS, test=test, feedback="test-leaking", concept=concept)
    for client in range(CLIENTS):
        x, y, weights = rows_of(data.test, client)
        leaked, named, mask = rows_of(data.val, client)
        np.testing.assert_array_equal(x, leaked)
        np.testing.assert_array_equal(y, named)
        np.testing.assert_allclose(mask / mask.sum(), weights / weights.sum(), rtol=1e-5)


def test_several_seeds_have_the_concepts_that_they_have_alone():
    setting = Setting(partition="iid", clients=4, concept="swapped_labels", seed=3, test="own")
    alone = [
        gather(resolve(Setting(**{**setting.__dict__, "seed": seed}))).federation for seed in (3, 4)
    ]
    both = gather(resolve(Setting(**{**setting.__dict__, "seeds": 2}))).federation
    for place, one in enumerate(alone):
        equal(np.asarray(both.train.y)[place], np.asarray(one.train.y))
        equal(np.asarray(both.test.y)[place], np.asarray(one.test.y))
    assert (np.asarray(alone[0].train.y) != np.asarray(alone[1].train.y)).any()


def groups_of(**options):
    resolved = resolve(Setting(**options))
    config, source = resolved.config, resolved.source
    return true_groups(config, source)


def test_true_groups_are_those_of_the_partition_and_of_the_concept():
    assert concept_of(6, 4).tolist() == [0, 1, 2, 3, 0, 1]
    assert groups_of(partition="iid", clients=4).tolist() == [0, 0, 0, 0]
    assert groups_of(partition="pathological").tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert groups_of(partition="nodes", topology=3, clients=5).tolist() == [0, 1, 2, 0, 1]
    few = groups_of(partition="pathological", max_examples=1)
    assert few.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert groups_of(partition="unbalanced_pathological", clients=20).tolist() == [
        client // 4 for client in range(20)
    ]
    rotated = {"concept": "rotation", "concept_groups": 2}
    assert groups_of(partition="iid", clients=5, **rotated).tolist() == [0, 1, 0, 1, 0]
    assert groups_of(partition="dirichlet", clients=5, **rotated).tolist() == [0, 1, 0, 1, 0]
    both = groups_of(partition="pathological", clients=20, **rotated)
    assert both.tolist() == [client % 10 for client in range(20)]
    for options in (
        {"partition": "dirichlet"},
        {"partition": "shards"},
        {"partition": "iid", "concept": "feature_noise"},
    ):
        assert groups_of(**options) is None


def test_no_image_of_another_client_is_needed():
    """Rows that nobody holds stay as they are, and the data set itself never changes."""
    before = SOURCE.x_train.copy()
    parts = nodes(SOURCE.y_train, 5, seed=0, topology=3)
    seen = concepts.shift_training_set(SOURCE, parts, rotation(SOURCE, 5, groups=4))
    np.testing.assert_array_equal(SOURCE.x_train, before)
    free = np.setdiff1d(np.arange(len(before)), np.concatenate(parts))
    assert len(free)
    np.testing.assert_array_equal(seen.x_train[free], before[free])


NUMBERS = from_arrays(np.ones((20, 4)), np.linspace(0, 1, 20))
WIDE = from_arrays(np.ones((20, 4, 6, 1), np.uint8), np.arange(20) % 2)
WORDS = from_arrays(np.ones((20, 4), np.int32), np.arange(20) % 2, vocabulary=[3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rotation(NUMBERS, 8), r"takes images \[h, w, channel\], not examples of shape"),
        (lambda: rotation(SOURCE, 8, groups=3), "3 groups of rotated images: expected 2 or 4"),
        (lambda: rotation(SOURCE, 3), "3 clients in 4 groups of a concept: expected at least one"),
        (lambda: rotation(WIDE, 8), "images 4x6 cannot be rotated by 90 degrees: choose 2 groups"),
        (lambda: swapped_labels(NUMBERS, 8), "permutes labels, and these targets are numbers"),
        (
            lambda: swapped_labels(WIDE, 8, groups=3),
            "2 labels have only 2 orders, choose fewer groups",
        ),
        (lambda: feature_noise(WORDS, 8), "these examples hold ids"),
        (
            lambda: federate(SOURCE, [PARTS[0], PARTS[0]], concept=rotation(SOURCE, 2, groups=2)),
            "clients hold the same examples, which a concept changes",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_test_sets_that_do_not_fit_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(sys.modules["jaxfl.data.federate"], "MOST_BYTES", 100_000)
    federate(SOURCE, PARTS, test="own", concept=rotation(SOURCE, CLIENTS))
    with pytest.raises(InputError, match=r"8 clients with 360 examples each.*choose test own"):
        federate(SOURCE, PARTS, test="global", concept=rotation(SOURCE, CLIENTS))


def score_of(algorithm, **options):
    """The mean test score of the deployed models after three rounds."""
    options = {"clients": 4, "partition": "iid", "test": "global", "model": "linear"} | options
    options |= {"rounds": 3, "eval_every": 3, "local_steps": 20, "lr": 0.1}
    resolved = resolve(Config(algorithm=algorithm, **options))
    (record,) = records(compile_run(build(resolved, gather(resolved))))
    return float(np.mean(record.evaluation.deployed.test))


@pytest.mark.slow
def test_clients_with_swapped_labels_are_scored_with_their_own_names():
    """Each client's model knows the labels of its group, which half of the clients do not share."""
    assert score_of("local", concept="swapped_labels", concept_groups=2) > 0.8


@pytest.mark.slow
def test_clients_with_noise_train_on_numbers_in_place_of_bytes():
    assert score_of("fedavg", concept="feature_noise") > 0.8
