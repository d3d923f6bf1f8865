"""The manifest of a checkpoint: digests of its files and of the data, and the options of the run.

`manifest.json` is the last file of a checkpoint that is written.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from jaxfl.experiment.config import parse_json
from jaxfl.experiment.store import files
from jaxfl.experiment.store.archive import digest_pieces
from jaxfl.experiment.store.digests import digest_files

MANIFEST = "manifest.json"


def write_manifest(
    folder: Path,
    round: int,
    options: dict[str, Any],
    data: str,
    inputs: dict[str, str],
    pieces: str,
) -> None:
    """Writes the manifest of a checkpoint.

    Args:
      folder: the checkpoint; its other files are complete.
      round: the number of rounds done.
      options: of the run, as JSON holds them.
      data: the digest of the clients' data.
      inputs: the digests of the other files that the run reads, by the options that name them.
      pieces: the digest of the pieces of its rounds, see `store.archive`.
    """
    content = {"round": round, "options": options, "data": data, "inputs": inputs}
    content["pieces"] = pieces
    content["files"] = digest_files(folder)
    content["manifest"] = _digest(_as_bytes(content))
    files.write_json(folder / MANIFEST, content)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are those that were written.

    Raises:
      ValueError: the checkpoint has no manifest, or a file is missing, added or changed.
    """
    try:
        content = parse_json((folder / MANIFEST).read_text())
    except FileNotFoundError as error:
        raise ValueError(f"no {MANIFEST}") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{MANIFEST} is damaged") from error
    if not isinstance(content, dict) or content.pop("manifest", "") != _digest(_as_bytes(content)):
        raise ValueError(f"{MANIFEST} is damaged")
    if "pieces" not in content:
        raise ValueError(f"{MANIFEST} has another form")
    if folder.name != f"{content['round']:06}":
        raise ValueError(f"it is of round {content['round']}")
    try:
        digests = digest_files(folder)
        del digests[MANIFEST]
    except OSError as error:
        raise ValueError(str(error)) from error
    record = content["files"]
    other = sorted(
        name for name in digests.keys() | record.keys() if digests.get(name) != record.get(name)
    )
    if other:
        raise ValueError(f"{other[0]} is damaged or of another checkpoint")
    return content


def check_pieces(folder: Path, manifest: dict[str, Any]) -> None:
    """Checks that the pieces of the rounds before a checkpoint are those that were written.

    Args:
      folder: of the pieces.
      manifest: of the checkpoint.

    Raises:
      ValueError: a piece is missing or changed.
    """
    try:
        digest = digest_pieces(folder, manifest["round"])
    except OSError as error:
        raise ValueError(str(error)) from error
    if digest != manifest["pieces"]:
        raise ValueError(f"a file of {folder} is damaged, missing or of another run")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _as_bytes(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
