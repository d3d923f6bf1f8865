"""Runs on frozen weights of a file, with adapters: what is trained, sent, kept and predicted."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfl
from jaxfl.cli import main
from jaxfl.core import tree
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, build, execute, gather, resolve
from jaxfl.experiment.session.make_model import layers_by_depth, make_model
from jaxfl.experiment.session.run_pictures import Style
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.studies.redraw import build_finished, redraw
from jaxfl.models import MODELS
from jaxfl.models.vit import ViT

WIDTH, RANK = 12, 2
KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """`vit_tiny` with two blocks of width 12."""

    def vit(outputs, side=None):
        return ViT(outputs, WIDTH, 2, 3, side=side)

    monkeypatch.setitem(MODELS, "vit_tiny", vit)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen")
    params = ViT(7, WIDTH, 2, 3).init(jax.random.key(5), jnp.zeros((1, 8, 8, 1)))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    # Large enough for predictions that differ; without a head, which begins anew.
    arrays = {tree.path(keys): 2 * np.asarray(leaf) for keys, leaf in leaves}
    body = {path: array for path, array in arrays.items() if "/head/" not in path}
    np.savez(folder / "weights.npz", **body)
    return folder


def config_in(folder, **changes):
    options = {
        "algorithm": "pfedgraph",
        "dataset": "digits",
        "model": "vit_tiny",
        "pretrained": str(folder / "weights.npz"),
        "lora": RANK,
        "lora_layers": "qkv",
        "clients": 5,
        "max_examples": 20,
        "rounds": 2,
        "local_steps": 2,
        "batch_size": 4,
        "score_after": "none",
        "devices": 1,
    }
    return Config(**(options | changes))


@pytest.mark.slow
def test_adapters_and_the_head_alone_are_trained_sent_and_kept(folder):
    summary = execute(config_in(folder), folder / "run")
    # At qkv of two blocks: A [12, 2] and B [2, 36]; and a head of ten classes.
    trained = 2 * (WIDTH * RANK + RANK * 3 * WIDTH) + 10 * (WIDTH + 1)
    assert summary["up"] == trained * 5 * 2
    # One matrix for the whole model has no depth.
    assert (folder / "run" / "graph.png").exists()
    assert not list(folder.glob("run/graph_by_layer*"))
    with np.load(folder / "run" / "models.npz", allow_pickle=False) as models:
        shapes = {name: models[name].shape for name in models if name.startswith("last/")}
    assert shapes == {
        "last/params/head/bias": (5, 10),
        "last/params/head/kernel": (5, WIDTH, 10),
        **{
            f"last/lora/block{number}/qkv/{name}": (5, *shape)
            for number in range(2)
            for name, shape in {"a": (WIDTH, RANK), "b": (RANK, 3 * WIDTH)}.items()
        },
    }


@pytest.mark.slow
def test_a_run_predicts_as_the_module_with_its_weights_and_products_of_adapters(folder):
    """The layers with adapters have the kernel W + A B, in a module without adapters."""
    directory = folder / "predicts"
    execute(config_in(folder), directory)
    run = jaxfl.load(directory)
    source = jaxfl.data.load("digits")
    x = source.x_test[:6]
    with np.load(folder / "weights.npz", allow_pickle=False) as arrays:
        weights = dict(arrays)
    with np.load(directory / "models.npz", allow_pickle=False) as arrays:
        own = {name.removeprefix("last/"): arrays[name][3] for name in arrays if "last/" in name}
    for number in range(2):
        path = f"block{number}/qkv"
        product = own[f"lora/{path}/a"] @ own[f"lora/{path}/b"]
        weights[f"params/{path}/kernel"] = weights[f"params/{path}/kernel"] + product
    weights |= {path: own[path] for path in ("params/head/kernel", "params/head/bias")}
    module = ViT(10, WIDTH, 2, 3)
    like = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
    params = jax.tree_util.tree_map_with_path(lambda keys, _: weights[tree.path(keys)], like)
    logits = module.apply(params, (jnp.asarray(x, jnp.float32) - source.shift) / source.scale)
    expected = jax.nn.softmax(logits)
    np.testing.assert_allclose(run.predict(3, x, proba=True), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.pictures
def test_weights_of_adapters_are_in_the_order_of_their_depth(folder):
    directory = folder / "layers"
    config = config_in(folder, algorithm="fedaghn", lora_layers="qkv|up|down", rounds=1)
    summary = execute(config, directory)
    adapters = [f"block{number}/{name}" for number in range(2) for name in ("qkv", "up", "down")]
    assert list(summary["graph"]) == [*adapters, "head"]
    with np.load(directory / "graph.npz", allow_pickle=False) as arrays:
        assert list(arrays) == [*(f"weights_{name}" for name in (*adapters, "head")), "ids"]
    runs = load_finished([directory])
    redraw(runs, build_finished(runs), directory, Style(("svg",)))
    picture = (directory / "graph_by_layer.svg").read_text()
    assert picture.index("block1/up") < picture.index("block1/down") < picture.index("head")


@pytest.mark.parametrize("remat", [False, True])
def test_the_tenth_block_comes_behind_the_ninth(monkeypatch, remat):
    monkeypatch.setitem(MODELS, "vit_tiny", lambda outputs: ViT(outputs, 3, 11, 1, remat=remat))
    source = jaxfl.data.load("digits")
    layers = layers_by_depth(Config("local", model="vit_tiny"), source)
    inside = ("norm1", "qkv", "out", "norm2", "up", "down")
    blocks = [
        f"block{number}{end}"
        for number in range(11)
        for end in ("", *(f"/{name}" for name in inside))
    ]
    assert layers == ["patches", *blocks, "norm", "head"]


@pytest.mark.slow
def test_without_adapters_the_head_alone_is_trained(folder):
    built = built_of(config_in(folder, lora=None, lora_layers=""))
    model = built.task.problem.init(jax.random.key(0))
    paths = [tree.path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(model)]
    assert paths == ["params/head/bias", "params/head/kernel"]


def trained_paths(model):
    params = jax.eval_shape(jaxfl.classification(model, np.zeros((8, 8, 1))).problem.init, KEY)
    return [tree.path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(params)]


@pytest.mark.slow
def test_adapters_are_at_all_layers_but_the_head_and_the_patches(folder):
    config = config_in(folder, lora=5, lora_layers="")  # a patch of 2 x 2 pixels has 4 inputs
    paths = trained_paths(make_model(config, jaxfl.data.load("digits")))
    layers = {path.rpartition("/")[0] for path in paths if path.startswith("lora/")}
    assert layers == {
        f"lora/block{number}/{name}" for number in range(2) for name in ("qkv", "out", "up", "down")
    }


def test_layers_that_are_too_small_for_the_rank_have_no_adapters_which_is_told(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    source = jaxfl.data.from_arrays(x, np.arange(40) % 2)
    params = MODELS["mlp"](2).init(KEY, jnp.zeros((1, 3)))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    np.savez(tmp_path / "w.npz", **{tree.path(keys): leaf for keys, leaf in leaves})
    config = Config("local", model="mlp", pretrained=str(tmp_path / "w.npz"), lora=3)
    with pytest.warns(RunWarning, match="--lora 3: no adapters at Dense_0, for which the rank"):
        model = make_model(config, source)
    problem = jaxfl.classification(model, np.zeros(3)).problem
    assert sorted(jax.eval_shape(problem.init, KEY)["lora"]) == ["Dense_1", "Dense_2"]
    with pytest.raises(InputError, match="--lora 32: no layer of the model but its head has more"):
        make_model(dataclasses.replace(config, lora=32), source)


def test_a_model_without_dense_layers_but_its_head_has_no_adapters(tmp_path):
    params = MODELS["linear"](10).init(KEY, jnp.zeros((1, 64)))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    np.savez(tmp_path / "weights.npz", **{tree.path(keys): leaf for keys, leaf in leaves})
    with pytest.raises(InputError, match=r"no dense layer but its head, .*: leave out --lora$"):
        built_of(config_in(tmp_path, model="linear", lora_layers=""))


@pytest.mark.slow
def test_named_parameters_are_trained_in_place_of_the_head_and_begin_with_their_weights(folder):
    built = built_of(config_in(folder, lora=None, lora_layers="", trainable="norm/|head"))
    model = built.task.problem.init(jax.random.key(0))
    with np.load(folder / "weights.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(model["params"]["norm"]["scale"], arrays["params/norm/scale"])
    assert model["params"]["block0"]["norm1"]["scale"] is None


@pytest.mark.slow
def test_in_bfloat16_frozen_weights_take_half_the_memory(folder):
    built = built_of(config_in(folder, compute="bfloat16"))
    model = built.task.problem.init(jax.random.key(0))
    program = jax.make_jaxpr(built.task.problem.apply)(model, jnp.zeros((1, 8, 8, 1)))
    kinds = {str(x.dtype) for x in program.consts if hasattr(x, "size") and x.size > WIDTH}
    assert kinds == {"bfloat16"}


def built_of(config):
    resolved = resolve(config)
    return build(resolved, gather(resolved))


@pytest.mark.slow
def test_without_its_weights_a_run_does_not_predict(folder, tmp_path):
    weights = tmp_path / "weights.npz"
    weights.write_bytes((folder / "weights.npz").read_bytes())
    execute(config_in(folder, pretrained=str(weights), rounds=1), tmp_path / "run")
    x = jaxfl.data.load("digits").x_test[:2]
    with np.load(folder / "weights.npz", allow_pickle=False) as arrays:
        np.savez(weights, **{name: arrays[name] + 1 for name in arrays})
    with pytest.raises(InputError, match="is not what it was in the run"):
        jaxfl.load(tmp_path / "run").predict(0, x)
    weights.unlink()
    with pytest.raises(InputError, match=r"No such file or directory\): restore"):
        jaxfl.load(tmp_path / "run").predict(0, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pretrained": "no.npz"}, r"no\.npz cannot be read \(No such file"),
        ({"model": "mlp"}, "no dense layer matches 'qkv'|the weights lack|the weights have"),
        ({"lora_layers": "("}, r"layers of --lora '\(' is no regular expression"),
        (
            {"lora": None, "lora_layers": "", "trainable": "*"},
            r"trainable of --pretrained '\*' is no regular",
        ),
        ({"trainable": "nothing", "lora": None, "lora_layers": ""}, "no parameter matches"),
        ({"lora": 50}, "rank 50, and the layer block0/qkv has 12 inputs"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line_and_nothing_is_written(
    folder, tmp_path, changes, message
):
    config = dataclasses.replace(config_in(folder), **changes)
    with pytest.raises(InputError, match=message) as error:
        execute(config, tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lora", "4"], "--lora is given without --pretrained"),
        (
            ["--pretrained", "w.npz", "--lora", ":layers=qkv"],
            "layers of --lora is given without --lora",
        ),
        (
            ["--pretrained", ":trainable=head"],
            "trainable of --pretrained is given without",
        ),
        (["--pretrained", "w.npz", "--lora", "0"], "--lora is 0|lora is 0"),
    ],
)
def test_options_that_need_others_say_so(words, message, capsys):
    assert main(["run", "fedavg", "--dataset", "digits", *words]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert any(one in text for one in message.split("|")), text


@pytest.mark.slow
def test_images_are_resized_to_a_given_side(folder):
    config = config_in(folder, pretrained=None, lora=None, lora_layers="")
    larger = built_of(dataclasses.replace(config, side=16)).task.problem
    params = larger.init(jax.random.key(0))
    # An even image stays even.
    images = jnp.ones((3, 8, 8, 1)), jnp.ones((3, 16, 16, 1))
    small, large = (np.asarray(larger.apply(params, x)) for x in images)
    np.testing.assert_allclose(small, large, rtol=1e-5)
    plain = built_of(config).task.problem.init(jax.random.key(0))
    assert jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, plain)
    with pytest.raises(InputError, match="mlp takes images as they are, and vit_tiny, eff"):
        built_of(dataclasses.replace(config, model="mlp", side=16))


@pytest.mark.slow
def test_describe_says_how_many_floats_are_trained_and_frozen(folder, capsys):
    words = [
        "--model",
        "vit_tiny",
        "--pretrained",
        str(folder / "weights.npz"),
        "--lora",
        str(RANK),
    ]
    words += ["--lora", ":layers=qkv"]
    assert main(["describe", "--dataset", "digits", *words]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    with np.load(folder / "weights.npz", allow_pickle=False) as arrays:
        frozen = sum(arrays[name].size for name in arrays)
    assert "vit_tiny, 322 floats that are trained" in shown
    assert f"{frozen:,} that are frozen" in shown
    assert main(["describe", "--dataset", "digits"]) == 0
    assert "mlp, 4,522 floats" in " ".join(capsys.readouterr().out.split())
