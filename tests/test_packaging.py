"""The wheel and the source distribution, and the files that a public host reads."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What would make another Python find this checkout, or run the tests as a worker of these tests.
OWN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "JAXFL_DATA_DIR")


def run(*command, cwd, **environment):
    """The output of a program that ends well, without the variables of this process's Python."""
    kept = {k: v for k, v in os.environ.items() if k not in OWN and not k.startswith("PYTEST_")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source distribution of this checkout."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.mark.slow(seconds=130)
def test_the_wheel_compares_methods_in_an_empty_environment(built, tmp_path):
    """Outside the repository, with nothing but what the wheel asks for."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {name.split("/")[0] for name in names} == {
        "jaxfl",
        f"jaxfl-{PROJECT['version']}.dist-info",
    }
    assert "jaxfl/py.typed" in names
    assert f"jaxfl-{PROJECT['version']}.dist-info/licenses/LICENSE" in names

    venv.create(tmp_path / "env", with_pip=True)
    programs = tmp_path / "env" / "bin"
    install = ("-m", "pip", "install", "--quiet", "--retries", "0", wheel)
    try:
        run(programs / "python", *install, cwd=tmp_path)
    except AssertionError as error:
        if "No matching distribution" in str(error):
            pytest.skip("no network, from which the wheel's dependencies would be installed")
        raise
    version = run(programs / "jaxfl", "--version", cwd=tmp_path)
    assert version == f"jaxfl {PROJECT['version']}\n"
    short = ("--rounds", "2", "--local-steps", "3", "--model", "linear", "--out", "compared")
    shown = run(programs / "jaxfl", "compare", *short, cwd=tmp_path)
    for method in ("local", "fedavg", "fedavg_ft", "pfedgraph"):
        assert method in shown
    assert (tmp_path / "compared" / "comparison.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow(seconds=60)
def test_the_tests_in_the_source_distribution_run_in_it(built, tmp_path):
    """All of them are collected, which reads every file that they need, and three files run."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        # Early releases of Python 3.11 have no filters.
        opened.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        opened.extractall(tmp_path)  # noqa: S202 - an archive of our own
    unpacked = tmp_path / f"jaxfl-{PROJECT['version']}"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    path = {"PYTHONPATH": str(unpacked)}
    collected = run(*tests, "--collect-only", "-m", "", cwd=unpacked, **path)
    # The last line; that of a test may be long.
    *_, last = collected.splitlines()
    assert int(re.match(r"(\d+) tests collected", last)[1]) > 4000
    chosen = ("tests/test_import.py", "tests/cli/test_cite.py", "tests/experiments/test_tables.py")
    run(*tests, *chosen, cwd=unpacked, **path)


def test_the_licence_is_the_whole_apache_licence_of_the_authors():
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability." in text
    assert "Copyright 2026 The jaxfl authors" in text
    assert PROJECT["license-files"] == ["LICENSE"]


def test_the_workflow_tests_every_python_version_that_the_package_names():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"]
    named = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert jobs["checks"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in jobs.values())
    for name in ("checks", "newest-jax"):
        assert jobs[name]["steps"][-1]["run"] == ".ci/run"


def test_the_nightly_workflow_runs_every_share_of_the_slow_tests():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert "schedule" in workflow[True]  # the key `on`, which YAML reads as a truth value
    slow = workflow["jobs"]["slow"]
    shares = slow["strategy"]["matrix"]["share"]
    assert shares == list(range(1, len(shares) + 1))
    assert slow["steps"][-1]["run"].endswith(f"/{len(shares)}")
