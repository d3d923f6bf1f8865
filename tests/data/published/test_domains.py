"""Office-Caltech and DomainNet: stand-ins in the form in which they are published."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image
from refusals import fails

from jaxfl.data import load
from jaxfl.data.published.domains import DOMAINNET, OFFICE_CALTECH
from jaxfl.data.published.prepare import prepare

pytestmark = pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")


def paint(path, red, mode="RGB"):
    """An image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (9, 7), red if mode == "L" else (red, 20, 30)).save(path)


def shown(source):
    """Owner, class and red of each example."""
    return [
        (source.owner_names[owner], source.class_names[label], int(image[0, 0, 0]))
        for owner, label, image in zip(source.owners, source.y_train, source.x_train, strict=True)
    ]


@pytest.fixture
def office(tmp_path):
    """Two classes in four domains, one of which has a folder more, and what they show."""
    held = []
    for i, domain in enumerate(OFFICE_CALTECH):
        for j, name in enumerate(("bike", "mug")):
            below = "images/" if domain == "dslr" else ""
            red = 10 * i + 100 * j
            # Grey images become coloured ones.
            mode = "L" if domain == "amazon" else "RGB"
            paint(tmp_path / f"office_caltech_10/{domain}/{below}{name}/frame_1.png", red, mode)
            held.append((domain, name, red))
    return tmp_path, held


def test_office_caltech_has_the_images_of_each_domain(office):
    folder, held = office
    (folder / "office_caltech_10/amazon/bike/Thumbs.db").write_bytes(b"")
    prepare("office_caltech", folder, size=4)
    source = load("office_caltech", folder)
    assert source.x_train.shape == (8, 4, 4, 3)
    assert source.owner_names == OFFICE_CALTECH
    assert sorted(shown(source)) == sorted(held)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: shutil.rmtree(f / "webcam"), "webcam is missing"),
        (lambda f: shutil.rmtree(f / "webcam/mug"), "webcam has 1 folders of classes"),
        (lambda f: os.rename(f / "webcam/mug", f / "webcam/cup"), "the same in all domains"),
        (lambda f: (f / "webcam/mug/frame_1.png").write_bytes(b"x"), "frame_1.png as an image"),
    ],
)
def test_damaged_folders_of_office_caltech_are_one_line(office, damage, message):
    folder, _ = office
    damage(folder / "office_caltech_10")
    fails(lambda: prepare("office_caltech", folder), message, folder)


@pytest.fixture
def net(tmp_path):
    """Three of DomainNet's classes in two of its domains, and what they show."""
    folder = tmp_path / "domainnet"
    held = []
    for i, domain in enumerate(("clipart", "sketch")):
        for split in ("train", "test"):
            lines = []
            for label, name in ((0, "bird"), (1, "sun"), (5, "zebra")):
                red = 100 * i + 10 * label + (split == "test")
                paint(folder / domain / name / f"{split}.png", red)
                lines.append(f"{domain}/{name}/{split}.png {label}\n")
                held.append((domain, name, red))
            (folder / f"{domain}_{split}.txt").write_text("".join(lines))
    return tmp_path, held


def test_domainnet_has_the_images_that_its_lists_name(net):
    folder, held = net
    paint(folder / "domainnet/clipart/bird/unlisted.png", 250)
    prepare("domainnet", folder)
    source = load("domainnet", folder)
    assert source.x_train.shape == (12, 32, 32, 3)
    assert source.class_names == ("bird", "sun", "zebra")
    assert sorted(shown(source)) == sorted(held)
    prepare("domainnet/ten", folder)
    source = load("domainnet/ten", folder)
    assert sorted(shown(source)) == sorted(one for one in held if one[1] != "sun")


def change(path, old, new):
    path.write_text(path.read_text().replace(old, new))


LIST = "sketch_test.txt"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / LIST).unlink(), "sketch_test.txt is missing"),
        (lambda f: (f / "sketch_train.txt").unlink(), "holds the lists of 1 domain: expected two"),
        (lambda f: (f / "sketch/sun/test.png").unlink(), "sun/test.png is missing"),
        (lambda f: change(f / LIST, " 1\n", " 5\n"), "sketch_test.txt, line 2: expected sketch"),
        (lambda f: change(f / LIST, " 1\n", "\n"), "sketch_test.txt, line 2"),
        (lambda f: change(f / LIST, " 1\n", " 99999999999\n"), "sketch_test.txt, line 2"),
        (lambda f: change(f / LIST, "sketch/sun", "sketch/.."), "sketch_test.txt, line 2"),
        (lambda f: change(f / LIST, "sketch/sun", "/etc/sun"), "sketch_test.txt, line 2"),
    ],
)
def test_damaged_lists_of_domainnet_are_one_line(net, damage, message):
    folder, _ = net
    damage(folder / "domainnet")
    fails(lambda: prepare("domainnet", folder), message, folder)


def test_domains_that_are_missing_are_named(tmp_path):
    message = " or ".join(f"{domain}_train.txt" for domain in DOMAINNET)
    fails(lambda: prepare("domainnet", tmp_path), f"expected {message}, as published", tmp_path)


def test_options_of_other_sets_are_refused(office):
    folder, _ = office
    fails(
        lambda: prepare("office_caltech", folder, steps=4),
        "office_caltech takes no steps: leave it out",
        folder,
    )
    fails(lambda: prepare("office_caltech", folder, size=0), "--size is 0", folder)
    assert np.load(prepare("office_caltech", folder))["x_train"].shape == (8, 32, 32, 3)
