"""Texts in files as a data set of ids."""

from pathlib import Path

import numpy as np
import pytest
from text_files import TEXTS, write_sites, write_tokenizer

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.data.arrays import from_npz
from jaxfl.data.text_files import prepare_text

pytestmark = pytest.mark.filterwarnings("ignore:.* sites have fewer than 10 texts")
# Of the tokenizer: [PAD], [UNK], [CLS], [SEP], and then the words by their letters.
MARKS = 4
WORDS = sorted({word for _, text in TEXTS for word in text.split()})
FIRST, LAST = 2, 3


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tokenizer(Path("tokenizer.json"))


def ids_of(text, length=None):
    """By hand: [CLS], the words, [SEP]."""
    words = [MARKS + WORDS.index(word) for word in text.split()]
    kept = words if length is None else words[: length - 2]
    return [FIRST, *kept, LAST]


def padded(rows):
    longest = max(map(len, rows))
    return [row + [-1] * (longest - len(row)) for row in rows]


def prepare(files, **options):
    return prepare_text(list(map(Path, files)), "data", Path("tokenizer.json"), **options)


def test_rows_of_csv_files_are_texts_of_their_site_and_class():
    files = write_sites(Path("sites"))
    found = prepare(files, text="text", target="kind")
    assert (found.sites, found.classes) == ({"north": 3, "south": 3}, {"bad": 2, "good": 4})
    source = from_npz(found.file)
    assert source.x_train.tolist() == padded([ids_of(text) for _, text in TEXTS])
    assert [source.class_names[label] for label in source.y_train] == [one for one, _ in TEXTS]
    assert [source.owner_names[owner] for owner in source.owners] == ["north"] * 3 + ["south"] * 3
    assert source.vocabulary == (MARKS + len(WORDS),)
    assert found.cut == 0


def test_a_longer_text_is_cut_and_keeps_its_marks():
    found = prepare(write_sites(Path("sites")), text="text", target="kind", length=4)
    source = from_npz(found.file)
    assert source.x_train.tolist() == padded([ids_of(text, 4) for _, text in TEXTS])
    assert found.cut == sum(len(ids_of(text)) > 4 for _, text in TEXTS) > 0
    with pytest.raises(InputError, match="length is 2, and the tokenizer sets 2 marks"):
        prepare(write_sites(Path("sites")), text="text", target="kind", length=2, name="short")


def test_without_a_target_the_label_of_an_id_is_the_next_one():
    source = from_npz(prepare(write_sites(Path("sites")), text="text").file)
    rows = padded([ids_of(text) for _, text in TEXTS])
    assert source.x_train.tolist() == [row[:-1] for row in rows]
    assert source.y_train.tolist() == [row[1:] for row in rows]
    assert source.classes == MARKS + len(WORDS)


def test_a_plain_text_is_cut_into_windows_in_which_each_word_is_predicted_once():
    words = (WORDS * 3)[:11]
    Path("ann.txt").write_text(" ".join(words))
    Path("bob.txt").write_text(" ".join(words[:3]))
    found = prepare(["ann.txt", "bob.txt"], length=4, name="plays")
    assert found.sites == {"ann": 3, "bob": 1}
    source = from_npz(found.file)
    ids = [MARKS + WORDS.index(word) for word in words]
    labels = source.y_train[source.owners == 0]
    assert labels[labels >= 0].tolist() == ids[1:]
    assert source.x_train[0].tolist() == ids[:4]
    assert source.y_train[-1].tolist() == [*ids[1:3], -1, -1]


def test_ids_of_new_texts_are_those_of_the_files():
    ids = jaxfl.data.text_ids([TEXTS[0][1], "unheard of"], "tokenizer.json", 6)
    assert ids.tolist() == [
        (ids_of(TEXTS[0][1], 6) + [-1] * 6)[:6],
        [FIRST, 1, 1, LAST, -1, -1],
    ]
    assert ids.dtype == np.int32


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ([], {}, "no file to read"),
        (["a.txt", "b.csv"], {}, "a.txt is a plain text and other files are not"),
        (["a.txt"], {"text": "text"}, "--text text: a plain text has no columns"),
        (["b.csv"], {}, "need --text COLUMN.* the columns are kind, text"),
        (["b.csv"], {"text": "texts"}, "--text texts: there is no such column, did you mean text"),
        (["b.csv"], {"text": "text"}, "the text text is missing in 1 of 3 rows"),
        (["b.csv"], {"text": "kind", "target": "kind"}, "all texts are of the class good"),
        (["a.txt", "empty.txt"], {}, "empty.txt has less than two words"),
        (["b.csv"], {"text": "kind", "length": 0}, "length is 0"),
    ],
)
@pytest.mark.filterwarnings("ignore:all texts are of one site")
def test_what_is_no_data_set_of_texts_is_refused(files, options, message):
    Path("a.txt").write_text("good and bad")
    Path("empty.txt").write_text("")
    Path("b.csv").write_text('kind,text\ngood,well\ngood,""\ngood,fine\n')
    with pytest.raises(InputError, match=message):
        prepare(files, **options)
    assert not Path("data").exists()


def test_a_file_that_is_no_tokenizer_is_refused():
    for content in ("{}", "no json", "[]"):
        Path("tokenizer.json").write_text(content)
        with pytest.raises(InputError, match=r"cannot read the tokenizer tokenizer\.json"):
            jaxfl.data.text_ids(["a"], "tokenizer.json")
