"""`--data-seed`: the clients' examples are drawn apart from the training."""

import dataclasses
import json

import numpy as np
import pytest
from finished_runs import run as finished_run

from jaxfl.cli import main
from jaxfl.experiment import Config, build, gather, resolve
from jaxfl.experiment.config import differences
from jaxfl.experiment.tables.heading import have_same_clients, setting_line

SHORT = Config(
    algorithm="fedavg",
    rounds=1,
    local_steps=2,
    model="linear",
    clients=5,
    partition="dirichlet",
    test="own",
    concept="swapped_labels",
    score_after="none",
    devices=1,
)


def data_of(**options):
    return gather(resolve(dataclasses.replace(SHORT, **options)))


def rows(data):
    return [[client.tolist() for client in parts] for parts in data.parts]


def test_the_seed_of_the_data_is_that_of_the_run_unless_it_is_given():
    """Partition, split and concept are those of a run of that seed, and so is the digest."""
    own, given, plain = data_of(seed=3), data_of(seed=8, data_seed=3), data_of(seed=8)
    assert rows(own) == rows(given) != rows(plain)
    assert own.digest == given.digest != plain.digest
    np.testing.assert_array_equal(own.federation.test.y, given.federation.test.y)


def test_all_seeds_of_a_run_share_the_data_of_the_seed_that_is_given():
    shared, apart = data_of(seeds=2, data_seed=3), data_of(seeds=2)
    assert rows(shared) == 2 * rows(data_of(seed=3))
    assert rows(apart)[0] != rows(apart)[1]
    for part in (shared.federation.train, shared.federation.val, shared.federation.test):
        np.testing.assert_array_equal(np.asarray(part.y)[0], np.asarray(part.y)[1])


@pytest.mark.slow
def test_it_is_an_option_as_any_other(tmp_path, capsys):
    """In config.json, in headings, in what may not change before a run goes on, and in commands."""
    out = tmp_path / "run"
    words = [f"--{name}" for name in ("rounds", "local-steps", "clients", "data-seed")]
    options = [word for name in words for word in (name, "2" if name != "--clients" else "5")]
    given = ["--seeds", "2", "--score-after", "none", "--model", "linear", "--out", str(out)]
    assert main(["run", "fedavg", *options, *given]) == 0
    assert json.loads((out / "config.json").read_text())["data_seed"] == 2
    with np.load(out / "clients.npz") as clients:
        np.testing.assert_array_equal(*clients["sizes"])
        assert (clients["deployed_test"][0] != clients["deployed_test"][1]).any()
    one, other = (dataclasses.replace(SHORT, data_seed=seed) for seed in (None, 2))
    assert setting_line([other]).endswith("seed 0, data seed 2")
    runs = {str(seed): finished_run("local", 0.5, data_seed=seed) for seed in (None, 2)}
    assert not have_same_clients(runs)
    (said,) = differences(dataclasses.asdict(one), other, 0)
    assert said == "--data-seed was None and is 2"
    capsys.readouterr()
    shown = []
    for seeds in (["--seed", "2"], ["--data-seed", "2"], []):
        assert main(["describe", "--partition", "dirichlet", *seeds]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.slow
@pytest.mark.parametrize(("data_seed", "fits"), [(4, True), (None, False)])
def test_runs_of_other_seeds_open_the_clients_on_disk_if_these_are_theirs(
    data_seed, fits, tmp_path
):
    stored = {"store": str(tmp_path / "data"), "keep_models": "none", "concept": None}
    first = resolve(dataclasses.replace(SHORT, data_seed=data_seed, seed=1, **stored))
    second = resolve(dataclasses.replace(SHORT, data_seed=data_seed, seed=2, **stored))
    expected = build(first, gather(first)).data.digest
    if fits:
        assert build(second, gather(second)).data.digest == expected
    else:
        with pytest.raises(ValueError, match=r"clients of another run \(seed differ\)"):
            gather(second)
