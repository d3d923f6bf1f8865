"""Windows with the next character as the label of each position, by role."""

import json

import numpy as np

from jaxfl.data import load
from jaxfl.data.published.characters import read_shakespeare_next
from jaxfl.data.published.prepare_published import prepare

PLAY = "BOB:\nabcabc\nso: he\n\nANN:\nxyxyxyxyx\n\nMUTE:\nno\n\nBOB:\nand thus:\nd\n"
SPEECHES = {"ANN": "xyxyxyxyx", "BOB": "abcabc\nso: he\nand thus:\nd"}  # MUTE says too little
NAMES = {"newline": "\n", "space": " "}


def text_of(x, words):
    return ["".join(words[row]) for row in x]


def test_each_position_of_a_role_has_its_next_character(tmp_path):
    (tmp_path / "input.txt").write_text(PLAY)
    arrays = read_shakespeare_next(tmp_path, length=4)
    words = arrays["words"]
    assert arrays["owner_names"].tolist() == list(SPEECHES)
    for number, speech in enumerate(SPEECHES.values()):
        mine = arrays["owners"] == number
        whole = len(speech[1:]) // 4 * 4
        # Windows follow each other, and each character but the first is a label once.
        assert "".join(text_of(arrays["x_train"][mine], words)) == speech[:whole]
        assert "".join(text_of(arrays["y_train"][mine], words)) == speech[1 : 1 + whole]
    names = [NAMES.get(name, name) for name in arrays["class_names"]]
    assert names == words[: len(names)].tolist()
    # "x" and "a" begin a text; the first is a label too, and "d" stands in what is left alone.
    assert set(words) == set("xyabc\nso: he\nand thus:\n")
    np.testing.assert_array_equal(np.unique(arrays["y_train"]), np.arange(len(names)))


def test_the_published_text_becomes_a_data_set_of_roles(tmp_path):
    (tmp_path / "tinyshakespeare").mkdir()
    lines = "".join(f"{role}:\n{line * 30}\n\n" for role, line in (("B", "abcde"), ("A", "bcad")))
    (tmp_path / "tinyshakespeare" / "input.txt").write_text(lines)
    prepare("shakespeare/next", tmp_path)
    source = load("shakespeare/next", tmp_path)
    assert (source.owner_names, source.class_names) == (("A", "B"), tuple("abcde"))
    assert (source.vocabulary, source.classes, source.outputs) == ((5,), 5, 5)
    assert source.y_train.shape == source.x_train.shape == (2, 80)
    assert source.each_position
    np.testing.assert_array_equal(source.y_train[:, :-1], source.x_train[:, 1:])


def test_of_leaf_s_windows_those_that_follow_each_other_are_taken(tmp_path):
    rng = np.random.default_rng(0)
    speech = "".join(rng.choice(list("abcd efg"), 400))
    other = "".join(rng.choice(list("abcdefgh"), 110)) + "Q"
    # LEAF's training and test part of a role are two runs of windows.
    parts = {
        "train": {"HAMLET": (speech, range(170)), "YORICK": (other, range(31))},
        "test": {"HAMLET": (speech, range(250, 320))},
    }
    for part, users in parts.items():
        data = {
            user: {"x": [text[i : i + 80] for i in rows], "y": [text[i + 80] for i in rows]}
            for user, (text, rows) in users.items()
        }
        counts = [len(rows) for _, rows in users.values()]
        content = {"users": list(users), "num_samples": counts, "user_data": data}
        file = tmp_path / "leaf_shakespeare" / part / "x.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(content))
    prepare("leaf_shakespeare/next", tmp_path)
    source = load("leaf_shakespeare/next", tmp_path)
    with np.load(tmp_path / "leaf_shakespeare-next.npz") as npz:
        words = npz["words"]
    assert source.owner_names == ("HAMLET", "YORICK")
    # "Q" is in no window that is taken, and the others have LEAF's order.
    assert "".join(words) == " abcdefgh"
    assert source.class_names == ("space", *"abcdefgh")
    mine = source.owners == 0
    starts = [0, 80, 160, 250]
    assert text_of(source.x_train[mine], words) == [speech[s : s + 80] for s in starts]
    assert text_of(source.y_train[mine], words) == [speech[s + 1 : s + 81] for s in starts]
    assert text_of(source.x_train[~mine], words) == [other[:80]]


def test_a_character_that_is_no_label_has_the_last_number(tmp_path):
    (tmp_path / "input.txt").write_text("A:\n" + "!" + "zy" * 10 + "\n")
    arrays = read_shakespeare_next(tmp_path, length=5)
    assert arrays["words"].tolist() == ["y", "z", "!"]
    assert arrays["class_names"].tolist() == ["y", "z"]
    assert text_of(arrays["x_train"], arrays["words"])[0] == "!zyzy"
