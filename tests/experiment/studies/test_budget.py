"""Equal numbers of gradients, and what is said of each algorithm."""

import dataclasses
import re

import pytest

from jaxfl.cli.describe_method import describe_factory
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.options import options_of
from jaxfl.experiment import Config, gather, resolve
from jaxfl.experiment.studies.budget import equalise, gradients

SETTING = Config(model="linear", clients=5, local_steps=12)


@pytest.mark.slow
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


def test_each_algorithm_states_its_paper(factory):
    facts = facts_of(factory)
    assert facts.title
    assert re.search(r"(19|20)\d\d", facts.paper) or not facts.sends
    assert facts.link.startswith("https://") or not facts.link


def test_the_command_line_says_what_is_stated_of_a_method(factory):
    facts = facts_of(factory)
    parts = describe_factory(factory)
    tables = [part for part in parts if isinstance(part, dict)]
    words = "\n".join(f"{label} {text}" for rows in tables for label, text in rows.items())
    for said in (facts.paper, facts.personal, facts.sends, facts.defaults, *options_of(factory)):
        assert said in words
    assert ("--defend accept" in words) == facts.offers_mixture
    assert ("--top-edges" in words) == facts.takes_top_edges
