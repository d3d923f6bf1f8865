import importlib.util
import io
import os
import time

import numpy as np
import pytest
import rich.console
from rich.console import Console

from jaxfl.core.errors import InputError
from jaxfl.data.published import prepare_published as module
from jaxfl.data.published import reading_progress
from jaxfl.data.published.prepare_published import prepare
from jaxfl.data.published.recipes import RECIPES, file_stem


def loaded(file):
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture
def news(tmp_path):
    """A data folder that holds a few posts of 20 Newsgroups in their published form."""
    for part in ("train", "test"):
        for topic in ("alt.x", "sci.space"):
            folder = tmp_path / "20newsgroups" / f"20news-bydate-{part}" / topic
            folder.mkdir(parents=True)
            (folder / "1").write_text(f"From: a\n\n{topic} is the word, the only\n")
    return tmp_path


@pytest.fixture
def films(tmp_path):
    """A folder of files downloaded by hand, with ml-100k's ratings."""
    folder = tmp_path / "fetched" / "ml-100k"
    folder.mkdir(parents=True)
    (folder / "u.data").write_text(
        "".join(f"{u}\t{i}\t{(u + i) % 5 + 1}\t0\n" for u in range(3) for i in range(10))
    )
    return folder


def test_texts_become_ids_of_words(news):
    file = prepare("20newsgroups", news, words=5, length=8)
    assert file == news / "20newsgroups.npz"
    arrays = loaded(file)
    assert arrays["words"].tolist() == ["the", "is", "only", "word", "alt"]
    np.testing.assert_array_equal(arrays["vocabulary"], [7])
    np.testing.assert_array_equal(
        arrays["x_train"], [[6, 1, 3, 2, 5, 2, 4, 0], [1, 1, 3, 2, 5, 2, 4, 0]]
    )
    np.testing.assert_array_equal(arrays["y_train"], [0, 1])
    np.testing.assert_array_equal(arrays["x_test"], arrays["x_train"])
    assert os.listdir(news / "20newsgroups") != []
    assert sorted(os.listdir(news)) == ["20newsgroups", "20newsgroups.npz"]


@pytest.mark.parametrize("levels", [1, 2])
def test_files_downloaded_by_hand(tmp_path, films, levels):
    """They lie in a folder of the set's own, or are all that there is in the one given."""
    manual = films if levels == 1 else films.parent
    file = prepare("movielens/100k-ratings", tmp_path / "new" / "data", manual_dir=manual)
    assert file == tmp_path / "new" / "data" / "movielens-100k-ratings.npz"
    arrays = loaded(file)
    assert (len(arrays["x_train"]), len(arrays["x_test"])) == (24, 6)
    np.testing.assert_array_equal(arrays["owners"], np.repeat(np.arange(3), 8))


def test_what_is_there_stays(news):
    file = news / "20newsgroups.npz"
    file.write_bytes(b"mine")
    assert prepare("20newsgroups", news) == file
    assert file.read_bytes() == b"mine"


def test_the_file_can_be_read_by_others(news):
    before = os.umask(0o022)
    try:
        assert prepare("20newsgroups", news).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
@pytest.mark.parametrize("where", ["reading", "writing", "replacing"])
def test_an_interruption_leaves_nothing(news, monkeypatch, where, error):
    def stopped(*arguments, **more):
        if where == "writing":
            arguments[0].write(b"half of it")
        raise error

    if where == "reading":
        monkeypatch.setattr(module.vocabularies, "tokenise", stopped)
    elif where == "writing":
        monkeypatch.setattr(np, "savez", stopped)
    else:
        monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(error):
        prepare("20newsgroups", news)
    assert os.listdir(news) == ["20newsgroups"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_an_interruption_of_tensorflow_datasets_leaves_nothing(tmp_path, monkeypatch, error):
    def stopped(name, work, **more):
        assert work.parent == tmp_path
        (work / "downloads").mkdir()
        (work / "downloads" / "half").write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(module.tfds, "read", stopped)
    with pytest.raises(error):
        prepare("cifar10", tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_one_line(news, monkeypatch):
    def full(*arguments, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(
        InputError, match=r"cannot write .*20newsgroups.npz .*No space left on device"
    ):
        prepare("20newsgroups", news)
    assert os.listdir(news) == ["20newsgroups"]


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../b",
        "/etc/passwd",
        "a//b",
        "a/",
        "",
        ".hidden",
        "a/.b",
        "a b",
        "a\nb",
        "a:b",
        "a\\b",
        "ä",
        "a/-b\0",
    ],
)
def test_a_hostile_name_never_becomes_a_path(tmp_path, name):
    with pytest.raises(InputError, match="is not the name of a data set"):
        prepare(name, tmp_path / "data")
    assert os.listdir(tmp_path) == []


def test_names_of_files():
    assert file_stem("movielens/100k-ratings") == "movielens-100k-ratings"
    assert file_stem("imdb_reviews/plain_text/1.0.0") == "imdb_reviews-plain_text-1.0.0"
    assert len({file_stem(name) for name in RECIPES}) == len(RECIPES)


def test_a_set_that_is_not_at_hand_says_what_is_expected_where(tmp_path):
    with pytest.raises(
        InputError, match=r"expected train.csv and test.csv, as published, in .*yahoo_answers_csv"
    ):
        prepare("yahoo_answers", tmp_path)
    folder = tmp_path / "yahoo_answers_csv"
    folder.mkdir()
    (folder / "train.csv").write_text('"1","a","b","c"\n')
    with pytest.raises(InputError, match=r"yahoo_answers_csv/test.csv is missing"):
        prepare("yahoo_answers", tmp_path)
    assert os.listdir(tmp_path) == ["yahoo_answers_csv"]


def test_a_wrong_checksum_is_an_error(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in RECIPES["mnist"].files:
        (folder / name).write_bytes(b"not as published")
    with pytest.raises(InputError, match="expected f68b3c2dcbeaaa9fbdd348bbdeb94873 as published"):
        prepare("mnist", tmp_path)
    assert os.listdir(tmp_path) == ["mnist"]


def test_bad_arguments_are_one_line(tmp_path, news):
    with pytest.raises(InputError, match="words is 0"):
        prepare("20newsgroups", news, words=0)
    with pytest.raises(
        InputError, match=r"folder .*nowhere of files downloaded by hand does not exist"
    ):
        prepare("20newsgroups", news, manual_dir=tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the data folder"):
        prepare("20newsgroups", tmp_path / "file" / "below")
    (tmp_path / "tinyshakespeare" / "input.txt").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot read shakespeare"):
        prepare("shakespeare", tmp_path)


def test_without_tensorflow_datasets_the_command_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'jaxfl\[tfds\]'"):
        prepare("cifar10", tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_after_a_while_and_only_on_a_terminal(monkeypatch, terminal):
    written = io.StringIO()
    monkeypatch.setattr(
        rich.console,
        "Console",
        lambda file: Console(file=written, force_terminal=terminal, width=100),
    )
    monkeypatch.setattr(reading_progress, "DELAY", 0.05)
    with reading_progress.show_progress("preparing x") as track:
        assert list(track(range(5), "at once", 5)) == list(range(5))
        assert written.getvalue() == ""
        track((), "waiting", None)
        if terminal:
            for _ in range(100):
                if "waiting" in written.getvalue():
                    break
                time.sleep(0.02)
            assert "preparing x: waiting" in written.getvalue()
    assert terminal or written.getvalue() == ""
