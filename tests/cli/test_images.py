"""From a folder of images to a run, on the command line."""

import json

import numpy as np
import pytest
from PIL import Image

from jaxfl.cli import main


@pytest.mark.slow
def test_a_folder_of_images_is_learned_from(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for owner in ("ann", "bob"):
        for shade, label in enumerate(("dark", "light")):
            for number in range(10):
                file = tmp_path / "shades" / owner / label / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                pixels = rng.integers(0, 100, (12, 16)) + 150 * shade
                Image.fromarray(pixels.astype(np.uint8)).save(file)
    assert main(["prepare", "images", "shades", "--size", "8", "--data-dir", "data"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "40 images of 2 sites: ann (20), bob (20)" in shown
    assert "2 classes: dark 20, light 20; 8x8 pixels, grey" in shown
    run = ["run", "fedavg", "--dataset", "shades", "--data-dir", "data", "--rounds", "3"]
    options = ["--local-steps", "20", "--score-after", "none", "--out", "run"]
    assert main([*run, *options]) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["final"]["deployed"]["mean"] == 1

    # New images: in folders of classes they have a score, and without them names alone.
    capsys.readouterr()
    assert main(["predict", "run", "--client", "bob", "--input", "shades/bob"]) == 0
    *lines, score = capsys.readouterr().out.splitlines()
    assert score == "accuracy: 1.0000"
    assert lines[:2] == ["file,prediction", "dark/0.png,dark"]
    assert lines[-1] == "light/9.png,light"
    Image.new("L", (30, 20), 250).save("new.png")
    assert main(["predict", "run", "--client", "bob", "--input", "new.png"]) == 0
    assert capsys.readouterr().out == "file,prediction\nnew.png,light\n"
    Image.new("RGB", (30, 20), "red").save("red.png")
    assert main(["predict", "run", "--client", "bob", "--input", "red.png"]) == 2
    assert (
        "images of red.png have colours, and those of the run are grey" in capsys.readouterr().err
    )
