"""A folder of images as a data set: which files are taken, and what their pixels become."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxfl.core.errors import InputError
from jaxfl.data.arrays import from_npz
from jaxfl.data.image_folder import prepare_images

pytestmark = pytest.mark.filterwarnings("ignore:.* sites have fewer than 10 images")
RNG = np.random.default_rng(0)


def write(path, size=(6, 6), mode="RGB", value=None, **options):
    """An image of random pixels, or of one value."""
    channels = {"RGB": 3, "L": 1, "RGBA": 4}[mode]
    pixels = RNG.integers(0, 256, (size[1], size[0], channels), np.uint8)
    if value is not None:
        pixels[:] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.squeeze(), mode).save(path, **options)
    return pixels


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return {
        f"{owner}/{label}/{number}.png": write(Path(f"photos/{owner}/{label}/{number}.png"))
        for owner in ("ann", "bob")
        for label in ("cat", "dog")
        for number in range(3)
    }


def test_pixels_owners_and_classes_are_those_of_the_files(photos):
    found = prepare_images(Path("photos"), "data", size=6)
    assert found.sites == {"ann": 6, "bob": 6}
    assert found.classes == {"cat": 6, "dog": 6}
    source = from_npz(found.file)
    assert source.x_train.dtype == np.uint8
    for row, (name, pixels) in enumerate(sorted(photos.items())):
        owner, label, _ = name.split("/")
        np.testing.assert_array_equal(source.x_train[row], pixels)
        assert source.owner_names[source.owners[row]] == owner
        assert source.class_names[source.y_train[row]] == label


def test_an_image_is_cut_to_the_square_at_its_centre(tmp_path):
    for label in ("cat", "dog"):
        pixels = write(tmp_path / f"ann/{label}/1.png", size=(10, 4))
        write(tmp_path / f"bob/{label}/2.png", size=(4, 4))
    with np.load(prepare_images(tmp_path, tmp_path / "data", name="wide", size=4).file) as data:
        np.testing.assert_array_equal(data["x_train"][1], pixels[:, 3:7])


def test_an_image_is_turned_as_its_camera_says(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter to the right
    for owner in ("ann", "bob"):
        for label in ("cat", "dog"):
            pixels = write(tmp_path / f"{owner}/{label}/1.png", exif=exif)
    with np.load(prepare_images(tmp_path, tmp_path / "data", name="turned", size=6).file) as data:
        np.testing.assert_array_equal(data["x_train"][3], np.rot90(pixels, -1))


def test_grey_images_have_one_channel_unless_one_has_colours(tmp_path):
    for owner in ("ann", "bob"):
        for label in ("cat", "dog"):
            grey = write(tmp_path / f"photos/{owner}/{label}/1.png", mode="L")
    found = prepare_images(tmp_path / "photos", tmp_path / "data", name="grey", size=6)
    assert found.shape == (6, 6, 1)
    write(tmp_path / "photos/ann/cat/2.png", mode="RGBA", value=[10, 20, 30, 0])
    found = prepare_images(tmp_path / "photos", tmp_path / "data", name="mixed", size=6)
    with np.load(found.file) as data:
        np.testing.assert_array_equal(data["x_train"][4], np.repeat(grey, 3, axis=2))
        assert data["x_train"][1, 0, 0].tolist() == [10, 20, 30]


def test_a_table_names_the_owners_of_class_folders(tmp_path):
    for label in ("cat", "dog"):
        for number in (1, 2):
            write(tmp_path / f"pets/{label}/{label}{number}.png")
    table = tmp_path / "owners.csv"
    table.write_text("file,owner\ncat1.png,ann\ncat/cat2.png,bob\ndog1.png,bob\ndog2.png,ann\n")
    found = prepare_images(tmp_path / "pets", tmp_path / "data", owner_table=table)
    source = from_npz(found.file)
    owners = [source.owner_names[owner] for owner in source.owners]
    assert owners == ["ann", "bob", "bob", "ann"]


def test_other_files_are_warned_of_and_hidden_ones_are_not(photos):
    Path("photos/ann/notes.txt").write_text("x")
    Path("photos/ann/.DS_Store").write_text("x")
    write(Path("photos/ann/.thumbnails/0.png"))
    with pytest.warns(UserWarning, match="1 files are no images by their names, as photos/ann/n"):
        assert list(prepare_images(Path("photos"), "data").classes) == ["cat", "dog"]


BAD = {
    "one class": "all images of photos are in the class cat",
    "deep": "photos/ann/cat/more/1.png does not stand where an image belongs: expected photos/OW",
    "damaged": "cannot read photos/ann/cat/9.png as an image",
    "sixteen bits": "photos/ann/cat/9.png has pixels of mode I;16, which are no bytes",
    "film": "photos/ann/cat/9.tiff holds 2 images, as of a film or of pages",
    "empty": "photos holds no image",
    "missing": "photos is no folder",
    "size": "--size is 0",
    "name": "mnist is the name of a published data set",
    "there": "exists: choose another --name, or add --overwrite",
    "table": "owners.csv does not name the owner of ann/1.png",
    "two owners": "line 3 of owners.csv gives 1.png to b, an earlier one to a",
    "column": "owners.csv lacks owner",
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_folder_of_images_is_refused(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    options = {}
    if case not in ("missing", "empty"):
        write(Path("photos/ann/cat/1.png"))
    if case not in ("missing", "empty", "one class"):
        write(Path("photos/bob/dog/1.png"))
    if case == "deep":
        write(Path("photos/ann/cat/more/1.png"))
    elif case == "damaged":
        Path("photos/ann/cat/9.png").write_bytes(b"no image")
    elif case == "sixteen bits":
        Image.fromarray(np.zeros((4, 4), np.uint16)).save("photos/ann/cat/9.png")
    elif case == "film":
        one = Image.new("L", (4, 4))
        one.save("photos/ann/cat/9.tiff", save_all=True, append_images=[one])
    elif case == "empty":
        Path("photos").mkdir()
    elif case == "size":
        options = {"size": 0}
    elif case == "name":
        options = {"name": "mnist"}
    elif case == "there":
        Path("data").mkdir()
        Path("data/photos.npz").touch()
    elif case in ("table", "two owners", "column"):
        write(Path("pets/ann/1.png"))
        write(Path("pets/bob/2.png"))
        rows = {"table": "file,owner\n2.png,b", "two owners": "file,owner\n1.png,a\n1.png,b"}
        Path("owners.csv").write_text(rows.get(case, "file,who\n1.png,a"))
        options = {"owner_table": Path("owners.csv")}
    folder = Path("pets" if "owner_table" in options else "photos")
    with pytest.raises(InputError, match=BAD[case].replace("(", r"\(")):
        prepare_images(folder, "data", **options)
    assert case == "there" or not Path("data").exists()


def test_a_table_of_owners_that_cannot_be_read_names_no_option_of_another_command(tmp_path):
    (tmp_path / "owners.csv").write_bytes("file,owner\na.png,Zoë\n".encode("latin-1"))
    (tmp_path / "pets").mkdir()
    for name, message in {
        "owners.csv": r"owners\.csv is not utf-8: save the file as UTF-8$",
        "none.csv": r"none\.csv .*: give the path of a CSV file$",
    }.items():
        with pytest.raises(InputError, match=message):
            prepare_images(tmp_path / "pets", tmp_path / "data", owner_table=tmp_path / name)
