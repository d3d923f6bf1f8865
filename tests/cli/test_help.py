"""The help of the commands: its groups, its order, and what it leaves out."""

import re

import pytest

from jaxfl.cli import NAMES, main, parse
from jaxfl.cli.command_options import Compare, Run
from jaxfl.cli.groups import typed_alone
from jaxfl.experiment.config.composite import FIELDS, dashed
from jaxfl.experiment.config.hints import hints
from jaxfl.experiment.config.presets import PRESETS
from jaxfl.experiment.config.setting import Options


def help_of(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def boxes(shown):
    """The title of each box -> its text, in the order of the help; captured, boxes are ASCII."""
    parts = re.split(r"^ (\S.*?) *\n -+ *\n", shown, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_the_help_shows_each_group_of_options_in_a_box_of_its_own(command, capsys):
    shown = boxes(help_of(command, capsys))
    groups = {
        f"{group.__name__.removesuffix('Options').lower()} options": group
        for group in hints(Options).values()
        if typed_alone(group)
    }
    others = ("positional arguments", "launch options")
    assert [title for title in shown if title not in others] == ["options", *groups]
    for title, group in groups.items():
        assert group.__doc__ in " ".join(shown[title].split())
        for name in typed_alone(group):
            assert re.search(rf"^  {dashed(name)}[ ,\n]", shown[title], re.MULTILINE), name
            assert not re.search(rf"^  {dashed(name)}[ ,\n]", shown["options"], re.MULTILINE), name


def test_the_help_of_a_run_has_65_options_on_three_screens(capsys):
    shown = help_of("run", capsys)
    assert len(shown.splitlines()) <= 3 * 56
    assert len(re.findall(r"^  --[a-z]", shown, re.MULTILINE)) <= 65
    text = " ".join(shown.split())
    for name, keys in FIELDS.items():
        assert f"[{' '.join(f'{key}=' for key in keys)}]" in text, name


def test_the_help_begins_with_what_is_needed_first(capsys):
    shown = help_of("run", capsys)
    assert "[ALGORITHM]" in shown.splitlines()[0]
    options = ("[ALGORITHM]", "--hyper", "--dataset", "--clip")
    places = [shown.index(f"\n  {name} ") for name in options]
    assert places == sorted(places)
    assert len(boxes(shown)["options"].splitlines()) < 30


@pytest.mark.parametrize("command", list(NAMES))
def test_the_help_shows_no_default_that_says_nothing(command, capsys):
    shown = help_of(command, capsys)
    for noise in ("{None}", "default: None", "default: )", "default: False"):
        assert noise not in shown, noise
    for line in shown.splitlines()[4:]:
        assert len(line) <= 80


def test_options_start_from_the_class_if_nothing_else_is_given():
    assert parse(["run", "fedavg"]) == Run(algorithm="fedavg")
    assert parse(["compare", "--dataset", "digits"]) == Compare()


def test_the_list_of_presets_says_each_caveat_once(capsys):
    assert main(["list", "presets"]) == 0
    text = capsys.readouterr().out
    for caveat in ("sections 4.1 and C.1", "three convolutions), FedRep", "as in the rerun"):
        assert text.count(caveat) == 1
    assert "pfedgraph-extreme to pfedgraph-attacks" in text
    for name, preset in PRESETS.items():
        assert all(clause in text for clause in preset.source.split("; ")), name
