"""Files of texts, and a tokenizer of their words."""

import csv

from tokenizers import Tokenizer, models, pre_tokenizers, processors

TEXTS = (
    ("good", "a fine day"),
    ("good", "well done and fine"),
    ("bad", "a bad day after a bad night"),
    ("good", "fine"),
    ("bad", "no good"),
    ("good", "well and good"),
)
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_tokenizer(file):
    """A word is an id; a text stands between [CLS] and [SEP]."""
    words = sorted({word for _, text in TEXTS for word in text.split()})
    vocabulary = {word: place for place, word in enumerate([*MARKS, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    # What a file of Hugging Face may say, and prepare does not do.
    tokenizer.enable_padding(length=9)
    tokenizer.enable_truncation(5)
    tokenizer.save(str(file))
    return len(vocabulary)


def write_sites(folder, times=1):
    """Two CSV files, north.csv and south.csv."""
    folder.mkdir(exist_ok=True)
    files = []
    for name, rows in (("north", TEXTS[:3]), ("south", TEXTS[3:])):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("kind", "text"), *rows * times])
        files.append(folder / f"{name}.csv")
    return files
