"""Training and test set divided together among the clients (PFLlib's split)."""

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data import from_arrays, load, merge_test_set
from jaxfl.experiment.config import Setting, resolve, resolve_data
from jaxfl.experiment.config.fields import DataOptions
from jaxfl.experiment.session.gather import gather

SOURCE = load("digits")


def test_the_merged_set_holds_every_example_once_and_no_test_set():
    merged = merge_test_set(SOURCE)
    assert len(merged.x_train) == len(merged.y_train) == 1797
    assert (len(merged.x_test), len(merged.y_test)) == (0, 0)
    np.testing.assert_array_equal(merged.x_train[1437:], SOURCE.x_test)
    np.testing.assert_array_equal(merged.y_train[1437:], SOURCE.y_test)
    assert (merged.classes, merged.scale) == (SOURCE.classes, SOURCE.scale)


def test_pfllibs_split_is_three_quarters_and_a_quarter_of_all_examples_of_a_client():
    setting = Setting(
        merge_test=True,
        test="own",
        test_fraction=0.25,
        val=0.0,
        partition="unbalanced_pathological",
    )
    data = gather(resolve(setting))
    train, val, test = (np.asarray(part.mask).sum(axis=1) for part in data.federation)
    assert train.sum() + test.sum() == 1797
    assert not val.any()
    held = train + test
    assert len(set(held.tolist())) > 3  # unbalanced
    assert ((held / 4 - test >= 0) & (held / 4 - test < 1)).all()


def test_a_merged_set_is_tested_on_its_clients_own_examples_by_default():
    options, source = resolve_data(DataOptions(merge_test=True))
    assert (options.test, len(source.y_train)) == ("own", 1797)
    again = resolve(Setting(merge_test=True), source)  # a set at hand is not merged twice
    assert len(again.source.y_train) == 1797
    assert len(resolve(Setting(merge_test=True), SOURCE).source.y_train) == 1797
    assert len(resolve(Setting(), SOURCE).source.y_train) == 1437


def test_bad_input():
    x = np.ones((20, 4))
    y = np.arange(20) % 2
    with pytest.raises(InputError, match="no test set to merge: leave out --merge-test"):
        merge_test_set(from_arrays(x, y))
    with pytest.raises(InputError, match="name the owners of their training examples alone"):
        merge_test_set(from_arrays(x, y, x, y, owners=np.arange(20) // 5))
    with pytest.raises(InputError, match="name the groups of their training examples alone"):
        merge_test_set(from_arrays(x, y, x, y, groups=np.arange(20) // 5))
