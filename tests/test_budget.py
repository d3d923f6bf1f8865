"""Equal numbers of gradients, and what is said of each algorithm."""

import dataclasses
import re
from pathlib import Path

import pytest

from jaxfl.algorithms import ALGORITHMS
from jaxfl.errors import InputError
from jaxfl.experiment import Config, gather, resolve
from jaxfl.experiment.show.methods import paper, personal
from jaxfl.experiment.studies.budget import equalise, gradients

SETTING = Config(model="linear", clients=5, local_steps=12)


def test_methods_of_more_gradients_take_fewer_steps():
    setting = resolve(SETTING)
    data = gather(setting)
    configs = [setting.replace(algorithm=name) for name in ("local", "ditto", "fedrep")]
    configs[2] = configs[2].replace(hyper={"head_steps": 4})
    assert [gradients(config, data) for config in configs] == [12, 24, 16]
    equal = equalise(configs, data)
    assert [config.config.local_steps for config in equal] == [12, 6, 8]
    assert [gradients(config, data) for config in equal] == [12, 12, 12]
    epochs = dataclasses.replace(SETTING, local_steps=None, local_epochs=1)
    with pytest.raises(InputError, match="an equal budget is one of steps"):
        equalise([resolve(epochs)], data)


def test_each_algorithm_says_whose_it_is_what_is_personal_and_what_is_sent(factory):
    assert re.search(r"(19|20)\d\d", paper(factory)) or factory is ALGORITHMS["local"]
    assert "sen" in personal(factory)


def test_the_page_of_all_methods_says_what_the_command_line_says():
    page = (Path(__file__).parent.parent / "docs/baselines.md").read_text().replace("\\|", "|")
    for name, factory in ALGORITHMS.items():
        assert f"| `{name}` | {paper(factory)} | {personal(factory)} |" in page
