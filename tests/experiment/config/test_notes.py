"""What options need, exclude and are called, as their hints say it: for all options alike."""

import dataclasses

import pytest

from jaxfl.cli import parse
from jaxfl.core.errors import InputError
from jaxfl.core.options import accepts
from jaxfl.experiment import Config, Setting
from jaxfl.experiment.config import to_json
from jaxfl.experiment.config.composite import option, typed
from jaxfl.experiment.config.effects import alternatives, check_effects, idle
from jaxfl.experiment.config.hints import hints, notes_of
from jaxfl.experiment.config.notes import GIVEN, Effect, Excludes, Heading, Needs, Others
from jaxfl.experiment.tables.heading import SENTENCES, setting_line

HINTS = hints(Setting)
DEFAULTS = {one.name: one.default for one in dataclasses.fields(Setting)}
NOTES = [(name, note) for name, notes in notes_of(Setting).items() for note in notes]
# Of options that are text, a value that is not the default.
TEXTS = {"work_file": "w.npy", "durations": "d.npy", "store": "clients", "partition": "nodes"}
TEXTS |= {"attack": "mimic", "concept": "rotation", "arrivals": "asynchronous", "compress": "topk"}
TEXTS |= {"split": "stratified", "class_weight": "balanced", "test": "global", "loss": "cox"}


def other_value(name):
    """A value of the option that is not its default."""
    tries = (TEXTS.get(name), 0.25, not DEFAULTS[name], 3, (1,), "mnist")
    fits = (value for value in tries if value is not None and accepts(HINTS[name], value))
    return next(value for value in fits if value != DEFAULTS[name])


def of_kind(kind):
    return [pytest.param(name, note, id=name) for name, note in NOTES if isinstance(note, kind)]


@pytest.mark.parametrize(("name", "note"), of_kind(Others))
def test_a_note_names_other_options_and_values_that_they_take(name, note):
    for other, values in note.others.items():
        assert other in HINTS
        for value in () if values is GIVEN else values:
            assert value == DEFAULTS[other] or accepts(HINTS[other], value)


@pytest.mark.parametrize(("name", "note"), of_kind(Effect))
def test_an_option_without_effect_is_refused_and_its_default_passes(name, note):
    plain = {"partition": "iid", "test": "global", "optimizer": "adam"}
    check_effects(Setting(**plain))
    without = Setting(**plain, **{name: other_value(name)})
    assert idle(without) == [name]
    with pytest.raises(InputError, match=rf"^{option(name)} is .*no effect without "):
        check_effects(without)
    other, values = next(iter(note.others.items()))
    needed = {other: other_value(other) if values is GIVEN else values[0]}
    needed |= {"clip": 1.0} if other == "noise" else {}
    check_effects(dataclasses.replace(without, **needed))


@pytest.mark.parametrize(("name", "note"), of_kind(Needs))
def test_an_option_without_its_need_is_refused(name, note):
    value = other_value(name) if note.when is None else note.when
    lacking = {
        other: other_value(other)
        for other, values in note.others.items()
        if values is not GIVEN and DEFAULTS[other] in values
    }
    kept = "last" if "keep_models" in note.others else "none"
    message = rf"^{option(name)} .*is given without {option(next(iter(note.others)))}.*: give both$"
    with pytest.raises(InputError, match=message):
        Setting(**({name: value, "keep_models": kept} | lacking))


@pytest.mark.parametrize(("one", "other"), alternatives(Setting))
def test_of_two_alternatives_one_is_refused_and_the_typed_one_replaces_the_other(
    one, other, tmp_path
):
    both = {name: other_value(name) for name in (one, other)}
    with pytest.raises(InputError, match=f"^both {option(one)} and {option(other)} are given: "):
        Setting(**both)
    for given, replaced in ((one, other), (other, one)):
        values = {replaced: both[replaced], "attack": "shuffle"}
        file = tmp_path / "config.json"
        file.write_text(to_json(Config(**values)))
        word = (
            "+".join(map(str, both[given])) if isinstance(both[given], tuple) else str(both[given])
        )
        command = parse(["run", "--config", str(file), *next(iter(typed({given: word}).items()))])
        assert getattr(command, replaced) == DEFAULTS[replaced]
        assert getattr(command, given) == both[given]


@pytest.mark.parametrize(("name", "note"), of_kind(Excludes))
def test_what_an_option_excludes_is_an_option(name, note):
    assert note.other in HINTS
    assert note.when is None or accepts(HINTS[name], note.when)


@pytest.mark.parametrize(("name", "note"), of_kind(Heading))
def test_a_heading_tells_the_option_in_a_part_that_there_is(name, note):
    parts = {part for parts in SENTENCES for part in parts}
    assert note.part in parts if note.part else note.behind in HINTS
    text = note.text(DEFAULTS[name] if note.always else other_value(name))
    changes = {} if note.always else {name: other_value(name)}
    if name == "classes_per_client":
        changes = {"partition": "shards" if "shards" in text else "labels"}
    changes |= {
        "beta": {"partition": "dirichlet"},
        "topology": {"partition": "nodes"},
        "smallest": {"partition": "dirichlet"},
    }.get(name, {})
    needs = {"drop_stragglers": {"stragglers": 0.5}, "arrivals": {"speeds": 1.0}}
    changes |= (needs | {"lora": {"pretrained": "weights.npz"}}).get(name, {})
    assert text in setting_line([Config(**changes)])


def test_a_heading_tells_what_was_given():
    config = Config(
        partition="dirichlet",
        beta=0.1,
        concept="rotation",
        clients=10,
        attack="shuffle",
        local_epochs=1,
        participation=0.5,
        unseen=0.2,
        stragglers=0.3,
        drop_stragglers=True,
        drop=0.1,
        rounds=1,
        seed=4,
        speeds=1.0,
        arrivals="asynchronous",
    )
    assert setting_line([config]) == (
        "digits, dirichlet (beta 0.1), rotation; 10 clients, attack shuffle, 50 % in each round, "
        "20 % unseen, 30 % stragglers, whose uploads are lost, 10 % of the uploads lost, "
        "speeds 1, asynchronous arrivals; 1 round, 1 local epoch, seed 4"
    )
    shards = dataclasses.replace(config, partition="shards", beta=0.5)
    assert "digits, shards (2 shards each), rotation; " in setting_line([shards])
    several = dataclasses.replace(config, seeds=3)
    assert setting_line([several]).endswith("1 round, 1 local epoch, 3 seeds")
    assert "seed" not in setting_line([config, several]).partition("; the runs differ")[0]
