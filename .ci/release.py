"""Makes a release: `python .ci/release.py 0.1.0`. It needs git, and `build` from `.[test]`.

It writes the version and the changelog, builds the source distribution and the wheel, checks each
of them in an empty environment, writes conda's recipe, commits and tags. To push the tag publishes
it (.github/workflows/release.yml). `python .ci/release.py build` only builds and checks.
"""

import argparse
import datetime
import hashlib
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
VERSION = re.compile(r"\d+\.\d+\.\d+")
UNRELEASED = "## [Unreleased]\n"


def project_with(text: str, version: str) -> str:
    """pyproject.toml with this version."""
    return replaced(r'^version = ".*"$', f'version = "{version}"', text)


def citation_with(text: str, version: str) -> str:
    """CITATION.cff with this version."""
    return replaced(r"^version: .*$", f"version: {version}", text)


def changelog_with(text: str, version: str, date: str) -> str:
    """The changelog, in which what was unreleased is this version.

    Raises:
      SystemExit: nothing is unreleased, or the version has been released.
    """
    before, heading, rest = text.partition(UNRELEASED)
    changes = re.split(r"^## \[", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not heading or not changes:
        raise SystemExit("CHANGELOG.md has no changes below [Unreleased]: write what is new")
    if f"\n## [{version}]" in rest:
        raise SystemExit(f"CHANGELOG.md has a version {version} already: choose a higher one")
    return f"{before}{UNRELEASED}\n## [{version}] - {date}\n{rest}"


def recipe_with(text: str, version: str, digest: str) -> str:
    """The recipe for conda with this version and the SHA-256 of its source distribution."""
    text = replaced(r"^  version: VERSION$", f'  version: "{version}"', text)
    return replaced(r"^  sha256: DIGEST$", f"  sha256: {digest}", text)


def replaced(pattern: str, by: str, text: str) -> str:
    """Text in which the one line of this pattern is another."""
    found, count = re.subn(pattern, by, text, flags=re.MULTILINE)
    if count != 1:
        raise SystemExit(f"{pattern} stands {count} times where it should stand once")
    return found


def run(*command: object, cwd: Path = ROOT) -> str:
    """The output of a program that ends well."""
    words = [str(word) for word in command]
    # Our own commands, with a version that has been checked.
    return subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def build(version: str) -> list[Path]:
    """Builds both distributions, and checks each in an environment that has nothing else."""
    for old in DIST.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", DIST)
    made = sorted(DIST.iterdir())
    if len(made) != 2 or not all(f"jaxfl-{version}" in file.name for file in made):
        raise SystemExit(f"built {[file.name for file in made]}: expected two files of {version}")
    for file in made:
        with tempfile.TemporaryDirectory() as folder:
            venv.create(Path(folder) / "env", with_pip=True)
            programs = Path(folder) / "env" / "bin"
            run(programs / "python", "-m", "pip", "install", "--quiet", file, cwd=Path(folder))
            shown = run(programs / "jaxfl", "--version", cwd=Path(folder))
            if shown != f"jaxfl {version}\n":
                raise SystemExit(f"{file.name} says that it is {shown.strip()}: expected {version}")
            short = ("--rounds", "2", "--local-steps", "3", "--model", "linear")
            run(programs / "jaxfl", "compare", *short, cwd=Path(folder))
        print(f"{file.name}: installs in an empty environment, and compares methods")
    return made


def version_of_tree() -> str:
    """The version that pyproject.toml states."""
    found = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return found[1] if found else ""


def release(version: str) -> None:
    """All steps but the push."""
    if not VERSION.fullmatch(version):
        raise SystemExit(f"the version is {version!r}: expected three numbers, such as 0.1.0")
    if run("git", "status", "--porcelain"):
        raise SystemExit("git has changes that are not committed: commit or stash them")
    date = datetime.date.today().isoformat()
    files = {
        "pyproject.toml": lambda text: project_with(text, version),
        "CITATION.cff": lambda text: citation_with(text, version),
        "CHANGELOG.md": lambda text: changelog_with(text, version, date),
    }
    texts = {name: change((ROOT / name).read_text()) for name, change in files.items()}
    for name, text in texts.items():
        (ROOT / name).write_text(text)
    made = build(version)
    (archive,) = (file for file in made if file.name.endswith(".tar.gz"))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    (DIST / "recipe.yaml").write_text(recipe_with(recipe, version, digest))
    run("git", "commit", "--quiet", "--message", f"Version {version}", *files)
    run("git", "tag", f"v{version}")
    print(f"tagged v{version}; `git push --follow-tags origin main v{version}` publishes it")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="three numbers, such as 0.1.0; or build")
    parser.add_argument("--tag", default="", help="with build: the tag that the version must have")
    given = parser.parse_args()
    if given.version != "build":
        release(given.version)
        return
    version = version_of_tree()
    if given.tag and given.tag != f"v{version}":
        raise SystemExit(f"the tag is {given.tag}: expected v{version}, as pyproject.toml has it")
    build(version)


if __name__ == "__main__":
    main()
