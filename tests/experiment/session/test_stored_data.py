"""`jaxfl run --store DIR`: the clients of a run on disk."""

import dataclasses
import json

import numpy as np
import pytest
from kill import content, interrupt_after, same

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute, resume
from jaxfl.experiment.config import load_config
from jaxfl.experiment.store import files
from jaxfl.simulation import on_disk

SHORT = Config(
    algorithm="ditto",
    rounds=7,
    local_steps=2,
    model="linear",
    clients=6,
    partition="iid",
    participation=0.5,
    eval_every=3,
    checkpoint_every=2,
    keep_models="none",
    devices=1,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Where the clients of the runs of this file lie."""
    return tmp_path_factory.mktemp("store") / "clients"


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """An undisturbed run, which writes the clients' data."""
    out = tmp_path_factory.mktemp("whole") / "run"
    execute(dataclasses.replace(SHORT, store=str(data)), out)
    return out


def finished(out):
    """The content of a finished run, with the states of the clients in place of their places."""
    found = content(out)
    places = found.pop("state/0000")
    width = json.loads((out / "clients/layout.json").read_text())["bytes"]
    rows = np.fromfile(out / "clients/clients.bin", np.uint8).reshape(-1, width)
    return found | {"clients": rows[places[places[:, 0] >= 0, 0]]}


def stored(data, **changes):
    return dataclasses.replace(SHORT, store=str(data), **changes)


@pytest.mark.slow(seconds=9)
def test_a_run_on_disk_has_the_scores_of_the_run_in_memory(whole, tmp_path):
    execute(SHORT, tmp_path / "memory")
    lines = [
        [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for out in (tmp_path / "memory", whole)
    ]
    for memory, disk in zip(*lines, strict=True):
        assert disk.keys() == memory.keys()
        assert disk["deployed"] == pytest.approx(memory["deployed"], abs=1e-6)
        assert disk["up"] == memory["up"]
    with np.load(whole / "clients.npz") as disk, np.load(tmp_path / "memory/clients.npz") as memory:
        np.testing.assert_array_equal(disk["sizes"], memory["sizes"])
        np.testing.assert_allclose(disk["fine_tuned_test"], memory["fine_tuned_test"], atol=1e-6)


@pytest.mark.slow
def test_the_data_are_written_once_and_opened_again(whole, data, tmp_path):
    before = (data / "train" / "x.npy").stat().st_mtime_ns
    execute(stored(data, algorithm="fedavg", rounds=1, eval_on="participants"), tmp_path / "run")
    assert (data / "train" / "x.npy").stat().st_mtime_ns == before
    assert on_disk.open_federation(data).clients == 6
    assert load_config(tmp_path / "run/config.json").store == str(data)


@pytest.mark.slow
def test_an_interrupted_run_on_disk_resumes_to_the_same_bits(whole, data, tmp_path):
    with pytest.raises(KeyboardInterrupt, match=r"after round 3: jaxfl resume .* goes on"):
        execute(stored(data), tmp_path / "run", follow=interrupt_after(1))
    resume(tmp_path / "run")
    assert same(finished(tmp_path / "run"), finished(whole))


@pytest.mark.slow
def test_a_run_on_disk_that_died_resumes_to_the_same_bits(whole, data, tmp_path):
    """It dies after round 3, whose states have been written, but no checkpoint."""

    def die(config, line):
        if line is not None:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        execute(stored(data), tmp_path / "run", follow=die)
    assert [path.name for path in files.checkpoints(tmp_path / "run")] == ["000002"]
    with pytest.raises(RuntimeError, match="killed"):
        resume(tmp_path / "run", follow=die)
    resume(tmp_path / "run")
    assert same(finished(tmp_path / "run"), finished(whole))


@pytest.mark.slow
def test_states_that_no_checkpoint_can_read_are_removed(data, tmp_path):
    execute(stored(data, checkpoint_every=None, rounds=1), tmp_path / "run")
    assert not (tmp_path / "run/clients").exists()
    execute(stored(data, rounds=2), tmp_path / "run", overwrite=True)
    assert (tmp_path / "run/clients/clients.bin").exists()
    in_memory = dataclasses.replace(SHORT, rounds=1)
    execute(in_memory, tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run/clients").exists()


@pytest.mark.slow
def test_states_that_the_last_checkpoint_needs_stay_where_a_run_is_resumed_at_its_end(
    data, tmp_path
):
    execute(stored(data, rounds=1), tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    resume(tmp_path / "run")
    assert resume(tmp_path / "run", rounds=2)["final"]["deployed"]["mean"] is not None


@pytest.mark.slow
def test_states_that_were_removed_are_missed(data, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        execute(stored(data), tmp_path / "run", follow=interrupt_after(1))
    (tmp_path / "run/clients/clients.bin").unlink()
    with pytest.raises(InputError, match="cannot read the clients' states"):
        resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 2}, "--store is given without --seeds 1, as it runs one seed after the other"),
        ({"keep_models": "last"}, "--store is given without --keep models=none"),
    ],
)
def test_what_needs_all_clients_in_memory_is_refused(options, message, data):
    with pytest.raises(InputError, match=message):
        stored(data, **options)


@pytest.mark.slow
def test_data_of_other_clients_are_refused(whole, data, tmp_path):
    with pytest.raises(InputError, match=r"clients of another run \(partition, beta differ\)"):
        execute(stored(data, partition="dirichlet", beta=0.3), tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(InputError, match="holds no data that jaxfl run wrote"):
        execute(stored(tmp_path / "other"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["sweep fedavg --over lr=.1,.2", "compare --equal-budget"])
def test_commands_that_keep_all_clients_in_memory_refuse_a_store(command, data, tmp_path, capsys):
    options = (
        f"--partition iid --clients 6 --keep models=none --out {tmp_path / 'out'} --store {data}"
    )
    assert main([*command.split(), *options.split()]) == 2
    assert "--store" in capsys.readouterr().err


@pytest.mark.slow
def test_malicious_clients_and_clipping_work_on_disk(tmp_path):
    """What depends on the clients' ids and sizes finds these of all clients."""
    options = {"attack": "label_flip", "attack_ratio": 0.5, "clip": 1.0, "noise": 0.1}
    config = dataclasses.replace(SHORT, algorithm="fedavg", rounds=2, **options)
    memory = execute(config, tmp_path / "memory")
    disk = execute(dataclasses.replace(config, store=str(tmp_path / "data")), tmp_path / "disk")
    assert disk["privacy"] == memory["privacy"]
    assert disk["final"]["deployed"] == pytest.approx(memory["final"]["deployed"], abs=1e-6)
    flipped = on_disk.open_federation(tmp_path / "data").read(np.arange(6)).train.y
    clean = dataclasses.replace(SHORT, algorithm="fedavg", rounds=1, store=str(tmp_path / "clean"))
    execute(clean, tmp_path / "other")
    assert (on_disk.open_federation(tmp_path / "clean").read(np.arange(6)).train.y != flipped).any()
