"""From files of texts and an encoder to graphs by layer, and a client's adapter for PEFT."""

import json

import numpy as np
import pytest
from text_files import write_sites, write_tokenizer
from text_models import BERT, bert_arrays, bert_logits

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment.store.peft_files import read_adapter, write_adapter
from jaxfl.experiment.store.weights_file import read_safetensors, safetensors_bytes

PREPARE = ["prepare", "text", "sites/north.csv", "sites/south.csv", "--text", "text"]
PREPARE += ["--target", "kind", "--data-dir", "data"]
RUN = ["--dataset", "sites", "--data-dir", "data", "--model", "bert", "--pretrained", "encoder"]
RUN += ["--lora", "2:layers=query|value", "--rounds", "2", "--local-steps", "3", "--lr", "0.5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sites, an encoder of random weights with its tokenizer, and the runs of a comparison."""
    folder = tmp_path_factory.mktemp("texts")
    write_sites(folder / "sites", times=10)
    (folder / "encoder").mkdir()
    words = write_tokenizer(folder / "encoder" / "tokenizer.json")
    arrays = bert_arrays(np.random.default_rng(0), head=False)
    # Of more words, as tables are whose size is a round number.
    table = np.random.default_rng(1).normal(size=(-(-words // 8) * 8, 8)).astype(np.float32)
    arrays["bert.embeddings.word_embeddings.weight"] = table
    (folder / "encoder" / "model.safetensors").write_bytes(safetensors_bytes(arrays))
    (folder / "encoder" / "config.json").write_text(json.dumps(BERT))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*PREPARE, "--tokenizer", "encoder/tokenizer.json"]) == 0
        methods = ["local", "layer_tree:groups=2", "hetlora:ranks=1+2"]
        assert main(["compare", *methods, *RUN, "--out", "runs"]) == 0
    return folder


@pytest.mark.slow
def test_texts_become_a_table_with_graphs_by_layer(folder):
    assert "layer_tree" in (folder / "runs" / "comparison.md").read_text()
    run = jaxfl.load(folder / "runs" / "layer_tree-groups=2")
    layers = [f"block{number}/{name}" for number in range(3) for name in ("query", "value")]
    assert (run.directory / "graph_by_layer.png").exists()
    assert [name for name in run.graph if name != "ids"] == [
        *(f"weights_{layer}" for layer in layers),
        "weights_head",
    ]
    np.testing.assert_allclose(run.graph["weights_block0/query"], 0.5)
    np.testing.assert_array_equal(run.graph["weights_head"][-1], np.eye(2))


@pytest.mark.slow
def test_an_adapter_for_peft_predicts_what_its_client_predicts(folder):
    """PEFT adds alpha / r B A to a layer's weight; the logits are those of BERT in NumPy."""
    run = jaxfl.load(folder / "runs" / "layer_tree-groups=2")
    run.write_adapter("south", folder / "south")
    config = json.loads((folder / "south" / "adapter_config.json").read_text())
    adapter = read_safetensors(folder / "south" / "adapter_model.safetensors")
    arrays = read_safetensors(folder / "encoder" / "model.safetensors")
    front = "base_model.model."
    for name in config["target_modules"]:
        a, b = (adapter[f"{front}{name}.lora_{one}.weight"] for one in "AB")
        assert a.shape[0] == b.shape[1] == config["r"]
        arrays[f"{name}.weight"] = arrays[f"{name}.weight"] + (
            config["lora_alpha"] / config["r"] * b @ a
        )
    assert config["modules_to_save"] == ["classifier"]
    for kind in ("weight", "bias"):
        arrays[f"classifier.{kind}"] = adapter[f"{front}classifier.{kind}"]
    x = run.test("south").x
    expected = [bert_logits(arrays, ids[ids >= 0]) for ids in x]
    np.testing.assert_allclose(run.scores("south", x), expected, atol=1e-4)
    with pytest.raises(InputError, match=r"adapter_model\.safetensors exists"):
        run.write_adapter("south", folder / "south")


@pytest.mark.slow
def test_a_run_begins_from_the_adapter_of_another(folder, monkeypatch):
    monkeypatch.chdir(folder)
    run = jaxfl.load("runs/layer_tree-groups=2")
    run.write_adapter("north", "north")
    begin = [*RUN, "--init", "north", "--rounds", "1", "--lr", "0", "--out", "begun"]
    assert main(["run", "local", *begin]) == 0
    x = run.test("south").x
    found = jaxfl.load("begun").scores("south", x)
    np.testing.assert_allclose(found, run.scores("north", x), atol=1e-5)


@pytest.mark.slow
def test_clients_have_the_ranks_that_they_are_given(folder):
    run = jaxfl.load(folder / "runs" / "hetlora-ranks=1+2")
    factors = run.models["lora"]["block0"]["query"]
    assert np.count_nonzero(np.asarray(factors["b"]).any(axis=2), axis=1).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "adapter_config.json has peft_type 'IA3'"),
        ({"peft_type": "LORA", "use_dora": True}, "has use_dora True: expected plain LORA"),
        ({"peft_type": "LORA", "init_lora_weights": "pissa"}, "init_lora_weights 'pissa'"),
        ({"peft_type": "LORA", "lora_alpha": 2}, "r and lora_alpha .None, 2.: expected positive"),
        ({"peft_type": "LORA", "r": 3, "lora_alpha": 2}, "another rank than adapter_config.json"),
        ({"peft_type": "LORA", "r": 2, "lora_alpha": 2}, "none of BERT, GPT-2 or Llama"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(tmp_path, config, message):
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    weights = safetensors_bytes({"base_model.model.odd.lora_A.weight": np.ones((2, 3))})
    (tmp_path / "adapter_model.safetensors").write_bytes(weights)
    with pytest.raises(ValueError, match=message):
        read_adapter(tmp_path)


def test_options_of_other_data_are_refused(tmp_path, capsys):
    assert main([*PREPARE, "--decimal", ","]) == 2
    assert "--decimal: for csv and windows, not for jaxfl prepare text" in capsys.readouterr().err
    assert main(PREPARE) == 2
    assert "needs --tokenizer FILE" in capsys.readouterr().err


def test_a_layer_with_an_adapter_that_is_trained_as_a_whole_too_is_refused(tmp_path):
    """PEFT would leave out its adapter without a word."""
    model = jaxfl.lora(jaxfl.models.bert(2), 1, "head")
    parameters = {
        "lora/head/a": np.ones((128, 1)),
        "lora/head/b": np.ones((1, 2)),
        "params/head/kernel": np.ones((128, 2)),
    }
    with pytest.raises(InputError, match="classifier has an adapter and is trained as a whole"):
        write_adapter(tmp_path, model, parameters, "encoder")
    assert not list(tmp_path.iterdir())
