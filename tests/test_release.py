"""The texts that a release changes, and the files with which others install jaxfl."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The names that conda-forge has for packages of the Python index.
CONDA = {"matplotlib": "matplotlib-base", "docstring-parser": "docstring_parser"}


def script():
    """`.ci/release.py` as a module."""
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = script()


def test_a_release_changes_the_version_alone():
    for name, change in (
        ("pyproject.toml", release.project_with),
        ("CITATION.cff", release.citation_with),
    ):
        before = (ROOT / name).read_text().splitlines()
        after = change((ROOT / name).read_text(), "8.9.10").splitlines()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        ((_, line),) = changed
        assert re.fullmatch(r'version(:| =) "?8\.9\.10"?', line), name
    made = tomllib.loads(release.project_with((ROOT / "pyproject.toml").read_text(), "8.9.10"))
    assert made["project"]["version"] == "8.9.10"


def test_what_was_unreleased_is_the_new_version():
    text = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n"
    made = release.changelog_with(text, "0.2.0", "2026-02-03")
    headings = re.findall(r"^## .*", made, re.MULTILINE)
    assert headings == ["## [Unreleased]", "## [0.2.0] - 2026-02-03", "## [0.1.0] - 2026-01-01"]
    assert made.index("0.2.0") < made.index("- New.") < made.index("0.1.0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Changelog\n", "no changes"),
        ("## [Unreleased]\n\n## [0.1.0]\n\n- Old.\n", "no changes"),
        ("## [Unreleased]\n\n- New.\n\n## [0.2.0]\n\n- Old.\n", "already"),
    ],
)
def test_a_release_without_changes_or_of_an_old_version_is_refused(text, said):
    with pytest.raises(SystemExit, match=said):
        release.changelog_with(text, "0.2.0", "2026-02-03")


@pytest.mark.parametrize("version", ["1.0", "v1.0.0", "1.0.0; rm", ""])
def test_a_version_is_three_numbers(version):
    with pytest.raises(SystemExit, match="three numbers"):
        release.release(version)


def test_the_changelog_of_the_tree_can_be_released():
    made = release.changelog_with((ROOT / "CHANGELOG.md").read_text(), "8.9.10", "2026-02-03")
    assert "\n## [8.9.10] - 2026-02-03\n" in made


def test_the_recipe_for_conda_asks_for_what_the_package_asks_for():
    text = (ROOT / "conda" / "recipe.yaml").read_text()
    recipe = yaml.safe_load(release.recipe_with(text, "8.9.10", "ab" * 32))
    assert recipe["context"]["version"] == "8.9.10"
    assert recipe["source"]["sha256"] == "ab" * 32
    python, *asked = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    pairs = [re.fullmatch(r"([\w-]+)(.*)", text).groups() for text in PROJECT["dependencies"]]
    assert asked == [f"{CONDA.get(name, name)} {bound}" for name, bound in pairs]
    assert recipe["about"]["license"] == PROJECT["license"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"jaxfl = {PROJECT['scripts']['jaxfl']}"


def test_the_container_runs_the_two_commands_of_the_readme():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    install = next(line for line in lines if line.startswith("RUN "))
    command = next(line for line in lines if line.startswith("CMD "))
    first, second = re.search(r"```bash\n(.*)\n```", (ROOT / "README.md").read_text())[1].split(
        " && "
    )
    assert install.replace(" --no-cache-dir", "") == f"RUN {first}"
    assert json.loads(command.removeprefix("CMD ")) == second.split()
    image = re.search(r"^FROM python:(3\.\d+)-slim$", "\n".join(lines), re.MULTILINE)
    assert f"Programming Language :: Python :: {image[1]}" in PROJECT["classifiers"]


def test_the_workflow_publishes_what_it_has_built_and_checked_without_a_password():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow[True]["push"]["tags"] == ["v*"]  # the key `on`, which YAML reads as true
    assert workflow["permissions"] == {"contents": "read"}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert any("release.py build --tag" in step.get("run", "") for step in build["steps"])
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
