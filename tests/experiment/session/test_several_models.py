"""`--model mlp+linear`: clients have one model each in turn, in everything that a run does."""

import dataclasses

import jax
import numpy as np
import pytest
from kill import content, interrupt_after, same

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, build, execute, gather, resolve, resume

CONFIG = Config(
    algorithm="lg_fedavg",
    rounds=4,
    local_steps=2,
    batch_size=8,
    max_examples=30,
    model="mlp+linear",
    clients=5,
    partition="iid",
    participation=0.8,
    test="own",
    checkpoint_every=1,
    devices=1,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "run"
    execute(CONFIG, out)
    return out


def test_stored_models_predict_with_the_score_of_the_run(whole):
    run = jaxfl.load(whole)
    test = gather(resolve(CONFIG)).federation.test
    scores = np.load(whole / "clients.npz")["deployed_test"][-1]
    for client, score in enumerate(scores):
        held = np.asarray(test.mask[client]) > 0
        x, y = np.asarray(test.x[client])[held], np.asarray(test.y[client])[held]
        assert (run.predict(client, x) == y).mean() == pytest.approx(score, abs=1e-6)


def test_a_round_has_as_many_clients_of_each_model():
    resolved = resolve(CONFIG)
    built = build(resolved, gather(resolved))
    for number in range(3):
        ids = np.asarray(built.participation(jax.random.key(number), number))
        assert sorted(ids % 2) == [0, 0, 1, 1]


@pytest.mark.slow(seconds=10)
def test_a_stopped_run_goes_on_bit_for_bit(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        execute(CONFIG, tmp_path / "run", follow=interrupt_after(2))
    resume(tmp_path / "run")
    same(content(whole), content(tmp_path / "run"))


def test_what_narrower_models_save_is_counted_in_proportion(tmp_path):
    changes = {"algorithm": "heterofl", "model": "mlp+mlp/4", "participation": 1.0, "rounds": 1}
    config = dataclasses.replace(CONFIG, **changes, compress="int8")
    sent = execute(config, tmp_path / "run")
    # A byte for each float, and the scale of each array.
    assert sent["up"] < sent["up_bytes"] < 1.1 * sent["up"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "mlp+mlp"}, "names a model twice"),
        ({"model": "mlp+mlp/3"}, "a number that divides its widths 32, 32, 32"),
        ({"model": "mlp+linear/2"}, "only mlp, cnn, resnet8 have narrower versions"),
        ({"model": "mlp+mlp/2"}, "lg_fedavg keeps at the server arrays whose shapes depend"),
        ({"model": "mlp+lenett"}, "lenet"),
        ({"model": "mlp+textcnn"}, "model textcnn takes names of words or users"),
        ({"clients": 1}, "2 models for 1 clients"),
        ({"unseen": 0.2}, "--unseen is 0.2"),
        ({"init": "weights.npz"}, "--init is"),
        ({"algorithm": "fedavg"}, "such as feddistill"),
        ({"speeds": 1.0, "arrivals": "asynchronous"}, "arrivals=asynchronous"),
    ],
)
def test_what_needs_one_model_of_all_clients_is_refused(changes, message):
    def made():
        resolved = resolve(dataclasses.replace(CONFIG, **changes))
        return build(resolved, gather(resolved))

    with pytest.raises(InputError, match=message) as caught:
        made()
    assert "\n" not in str(caught.value)
