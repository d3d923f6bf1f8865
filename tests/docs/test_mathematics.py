"""Formulas of docstrings as MathML: what is one, what is words, and every tag closes."""

import inspect
import re
import sys
from xml.etree import ElementTree

import pytest
from examples import script

from jaxfl.algorithms import ALGORITHMS

mathematics = script("mathematics")


def words(text):
    """The text with its formulas in «», without subscripts and spaces, so that they can be read."""
    made = mathematics.set_formulas(text)
    return re.sub(r"<math>(.*?)</math>", lambda found: f"«{re.sub('<.*?>', '', found[1])}»", made)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("client i: x_i = sum_j r_ij w_j, and sends it", "client «i»: «xi=∑jrijwj», and sends it"),
        ("a step of the client's s", "a step of the client's «s»"),
        ("F_i(w) - lam / 2 <w, n_i> / |w| from c", "«Fi(w)\N{MINUS SIGN}λ/2⟨w,ni⟩/|w|» from «c»"),
        ("1 / (1 + p_i) for j != i, `r_ij` too", "«1/(1+pi)» for «j≠i», `r_ij` too"),
        ("h(v_i; phi). The sum of |a_i|, by rate", "«h(vi;φ)». The sum of «|ai|», by rate"),
        ("k-means (Algorithm 1) in log scale", "k-means (Algorithm 1) in log scale"),
        ("if x_i < eps1 the max |w| counts", "if «xi&lt;ε1» the «max|w|» counts"),
    ],
)
def test_formulas_are_told_from_words(text, expected):
    assert words(text) == expected


def test_what_stands_below_and_above():
    made = mathematics.set_formulas("argmin_r v_j r_j^2 / m_S^(1/2)")
    root = ElementTree.fromstring(made)  # noqa: S314 - our own text
    below = root.find("munder")
    assert ["".join(part.itertext()) for part in below] == ["argmin", "r"]
    powers = [["".join(part.itertext()) for part in one] for one in root.findall("msup")]
    assert powers == [["rj", "2"], ["mS", "1/2"]]


def test_the_rounds_of_all_methods_are_sound_tables_with_formulas():
    for name, factory in ALGORITHMS.items():
        _, _, text = inspect.getdoc(sys.modules[factory.__module__]).partition("\n\n")
        html = mathematics.set_round(text).replace("&emsp;", " ")
        table = ElementTree.fromstring(html)  # noqa: S314 - our own text
        assert len(table) == len(text.splitlines()), name
        assert table.find(".//math") is not None, name
        # Nothing but words is left outside: no subscript, no sum, no bracket of a product.
        for one in table.iter("td"):
            outside = (one.text or "") + "".join(child.tail or "" for child in one)
            assert not re.search(r"\b[a-zA-Z]_[a-z]\b|sum_|⟨", outside), f"{name}: {outside}"
