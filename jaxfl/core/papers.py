"""Publications as the methods state them, and their BibTeX entries."""

import re
import unicodedata
from dataclasses import dataclass

from jaxfl.core.version import VERSION

__all__ = [
    "Paper",
    "bibtex",
    "entry",
    "software",
]

# The venue as a text names it -> its whole name and the BibTeX field for it.
VENUES = {
    "AAAI": ("AAAI Conference on Artificial Intelligence", "booktitle"),
    "ACM MM": ("ACM International Conference on Multimedia", "booktitle"),
    "AISTATS": ("International Conference on Artificial Intelligence and Statistics", "booktitle"),
    "COLM": ("Conference on Language Modeling", "booktitle"),
    "CVPR": ("IEEE/CVF Conference on Computer Vision and Pattern Recognition", "booktitle"),
    "ICLR": ("International Conference on Learning Representations", "booktitle"),
    "EMNLP": (
        "Conference on Empirical Methods in Natural Language Processing",
        "booktitle",
    ),
    "ICML": ("International Conference on Machine Learning", "booktitle"),
    "IEEE TSP": ("IEEE Transactions on Signal Processing", "journal"),
    "IEEE TNNLS": ("IEEE Transactions on Neural Networks and Learning Systems", "journal"),
    "IJCAI": ("International Joint Conference on Artificial Intelligence", "booktitle"),
    "Knowledge-Based Systems": ("Knowledge-Based Systems", "journal"),
    "MLSys": ("Proceedings of Machine Learning and Systems", "booktitle"),
    "NeurIPS": ("Advances in Neural Information Processing Systems", "booktitle"),
    "NeurIPS Workshop on Federated Learning": (
        "NeurIPS Workshop on Federated Learning for Data Privacy and Confidentiality",
        "booktitle",
    ),
    "PAKDD": ("Pacific-Asia Conference on Knowledge Discovery and Data Mining", "booktitle"),
    "SPAWC": (
        "IEEE International Workshop on Signal Processing Advances in Wireless Communications",
        "booktitle",
    ),
}
# Combining characters of Unicode and the commands of LaTeX for these accents.
ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING CARON}": "v ",
    "\N{COMBINING CEDILLA}": "c ",
}
# Words that a key of BibTeX passes over.
SMALL_WORDS = {"a", "an", "on", "the"}


@dataclass(frozen=True)
class Paper:
    """A publication.

    Example:
      >>> jaxfl.core.facts.facts_of(jaxfl.algorithms.fedprox).publication.text
      'Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020'
    """

    # "Family, Given and Family, Given and ...", all of them, as BibTeX has it
    authors: str
    title: str
    # a key of `VENUES`; "" for a preprint
    venue: str
    year: int
    # URL of the paper
    link: str
    # what a reference should add, such as "the link is to its extended version"
    note: str = ""

    @property
    def families(self) -> list[str]:
        """The family names of the authors."""
        return [name.partition(",")[0] for name in self.authors.split(" and ")]

    @property
    def text(self) -> str:
        """The paper in one line: 'Ye et al., "Personalized ...", ICML 2023'."""
        families = self.families
        names = " and ".join(families) if len(families) < 3 else f"{families[0]} et al."
        published = f"{self.venue} {self.year}".strip()
        text = f'{names}, "{self.title}", {published}'
        return f"{text}; {self.note}" if self.note else text

    @property
    def key(self) -> str:
        """The key of the BibTeX entry, such as ye2023personalized: family, year and first word."""
        words = re.findall(r"[a-z]+", _ascii(self.title).lower())
        family = re.sub(r"[^a-z]", "", _ascii(self.families[0]).lower())
        return f"{family}{self.year}{next(word for word in words if word not in SMALL_WORDS)}"


def bibtex(paper: Paper) -> str:
    """The BibTeX entry of a paper, in ASCII.

    A paper of a conference is an `@inproceedings`, of a journal an `@article`, a preprint a
    `@misc`.

    Example:
      >>> fedavg = jaxfl.core.facts.facts_of(jaxfl.algorithms.fedavg)
      >>> print(bibtex(fedavg.publication).splitlines()[0])
      @inproceedings{mcmahan2017communication,
    """
    fields = {"author": paper.authors, "title": f"{{{paper.title}}}"}
    kind = "misc"
    if paper.venue:
        name, field = VENUES[paper.venue]
        fields[field] = name
        kind = "article" if field == "journal" else "inproceedings"
    fields["year"] = str(paper.year)
    fields["url"] = paper.link
    if paper.note:
        fields["note"] = paper.note
    return entry(kind, paper.key, fields)


def software() -> str:
    """The BibTeX entry of jaxfl itself.

    Example:
      >>> print(software().splitlines()[0])
      @misc{jaxfl,
    """
    fields = {
        "author": "{The jaxfl authors}",
        "title": "{jaxfl: personalized federated learning on collaboration graphs, in pure JAX}",
        "year": "2026",
        "version": VERSION,
    }
    return entry("misc", "jaxfl", fields)


def entry(kind: str, key: str, fields: dict[str, str]) -> str:
    """An entry of BibTeX from its fields, whose accents become commands of LaTeX.

    Example:
      >>> print(entry("misc", "mine", {"title": "Mine", "year": "2026"}))
      @misc{mine,
        title = {Mine},
        year  = {2026},
      }
    """
    width = max(map(len, fields))
    lines = [f"  {name:<{width}} = {{{_latex(value)}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def _latex(text: str) -> str:
    """The text with commands of LaTeX in place of accents."""
    letters = unicodedata.normalize("NFD", text)
    return re.sub(r"(\w)([\u0300-\u036f])", lambda m: f"{{\\{ACCENTS[m[2]]}{m[1]}}}", letters)


def _ascii(text: str) -> str:
    """The text without accents."""
    return unicodedata.normalize("NFD", text).encode("ascii", "ignore").decode()
