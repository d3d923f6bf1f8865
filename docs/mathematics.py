"""Formulas in the plain text of docstrings, as MathML, which browsers set as mathematics.

`x_i = sum_j r_ij w_j, and sends it` is a formula and words. What is one, by these rules: letters
with subscripts, single letters, names of Greek letters and of functions, and what stands between
them. Words such as `rate` are left as they are, within a formula too.
"""

import re
import unicodedata
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

# Names of Greek letters, and what Unicode calls those that it calls otherwise.
GREEK_NAMES = (
    *("alpha", "beta", "eps", "eta", "kappa", "lam", "lambda", "mu", "nu", "phi", "psi", "rho"),
    *("sigma", "tau", "theta", "xi", "zeta"),
)
UNICODE = {"eps": "epsilon", "lam": "lamda", "lambda": "lamda"}
GREEK = {
    name: unicodedata.lookup(f"GREEK SMALL LETTER {UNICODE.get(name, name).upper()}")
    for name in GREEK_NAMES
}
# Whose subscript stands below.
LARGE = {"sum": "∑", "argmin": "argmin", "argmax": "argmax", "min": "min", "max": "max"}
FUNCTIONS = ("cos", "exp", "log", "softmax", "sign", "KL", "LayerNorm", "LeakyReLU")
SIGNS = {"-": "\N{MINUS SIGN}", "*": "·", ".": "·", "<=": "≤", ">=": "≥", "!=": "≠"}
INDICES = set("ijklmqrst")
TOKEN = re.compile(
    r"(?P<word>[A-Za-z]+(?:-[A-Za-z]+)+|[A-Za-z]{2,}'s?(?![a-z(]))"
    r"|(?P<name>[A-Za-z]+\d?(?:_[A-Za-z0-9]+)*'?)"
    r"|(?P<number>\d*\.?\d+)"
    r"|(?P<sign>\.\.\.|[<>!]=|[-=+*/^<>|()\[\]{},:;.~⟨⟩])"
    r"|(?P<other>.)",
    re.DOTALL,
)
PRODUCT = re.compile(r"<([^<>=]+), ([^<>=]+)>")
OPENING = {"(": ")", "[": "]", "{": "}", "⟨": "⟩"}
# What may stand between two parts of one formula.
OPERATORS = set("-=+*/^<>|") | {"<=", ">=", "!="}
BETWEEN = OPERATORS | set("()[]{},;.⟨⟩")


class Token(NamedTuple):
    """A piece of a text, with the space in front of it."""

    kind: str
    text: str
    space: str


def set_formulas(text: str) -> str:
    """The text with MathML in place of its formulas; code in backticks is left as it is.

    Example:
      >>> set_formulas("with x_i = 1 of each")
      'with <math><msub><mi>x</mi><mi>i</mi></msub><mo>=</mo><mn>1</mn></math> of each'
    """
    pieces = re.split(r"(`[^`]*`|\n\s*\n)", text)
    return "".join(
        piece if piece.startswith("`") or not piece.strip() else _set(piece) for piece in pieces
    )


def _set(text: str) -> str:
    """The same, of text without code and without paragraphs."""
    # <a, b> is an inner product; a single < or > is a relation.
    while text != (found := PRODUCT.sub(r"⟨\1, \2⟩", text)):
        text = found
    tokens = list(_tokens(text))
    strong = [_is_formula(tokens, place) for place in range(len(tokens))]
    out = []
    place = 0
    while place < len(tokens):
        if strong[place]:
            end = _end(tokens, strong, place)
            begin = _begin(tokens, place, end, len(out))
            end = _balance(tokens, begin, end)
            del out[len(out) - (place - begin) :]
            out.append(tokens[begin].space + _mathml(tokens[begin:end]))
            place = end
        else:
            out.append(tokens[place].space + escape(tokens[place].text, quote=False))
            place += 1
    return "".join(out)


def _tokens(text: str) -> Iterator[Token]:
    """The pieces of a text, with the space in front of each."""
    space = ""
    for found in TOKEN.finditer(text):
        if found.lastgroup == "other" and found[0].isspace():
            space += found[0]
            continue
        yield Token(found.lastgroup or "", found[0], space)
        space = ""
    if space:
        yield Token("other", "", space)


def _is_formula(tokens: list[Token], place: int) -> bool:
    """Whether a token is a part of a formula wherever it stands."""
    token = tokens[place]
    if token.kind == "sign":
        return token.text in "⟨⟩"
    if token.kind != "name":
        return False
    base, *subscripts = token.text.removesuffix("'").split("_")
    plain = base.rstrip("0123456789")
    if subscripts or plain != base:
        return len(plain) == 1 or plain in GREEK or plain in LARGE or plain in FUNCTIONS
    if base in GREEK or base == "grad":
        return True
    if len(base) != 1:
        # "sum" and "log" are words too: a function is one in front of its argument.
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        known = base in LARGE or base in FUNCTIONS
        return known and after is not None and after.text in ("(", "|") and after.space in ("", " ")
    if base in "aAI":
        around = [tokens[n] for n in (place - 1, place + 1) if 0 <= n < len(tokens)]
        return any(one.text in OPERATORS | set("()[]⟨⟩") for one in around) and base != "I"
    return True


def _end(tokens: list[Token], strong: list[bool], place: int) -> int:
    """Where a formula ends that begins at a place: behind its last part."""
    end = place + 1
    for number in range(place + 1, len(tokens)):
        token = tokens[number]
        if "\n\n" in token.space or "  " in token.space.replace("\n", " ").strip("\n"):
            break
        if strong[number]:
            end = number + 1
        elif token.kind == "number":
            before = tokens[number - 1].text
            if before in OPERATORS or before in set("([{") or (before == "," and end == number - 1):
                end = number + 1
        elif token.text not in BETWEEN or (token.text in ",;" and _open(tokens[place:number]) == 0):
            break
        elif token.text in "])}|" and _open(tokens[place:number]) > 0:
            end = number + 1
        elif token.text == "." and not (
            token.space and number + 1 < len(tokens) and tokens[number + 1].space
        ):
            break  # the end of a sentence
    return end


def _open(tokens: list[Token]) -> int:
    """How many brackets are open."""
    texts = [token.text for token in tokens]
    bars = texts.count("|") % 2
    return sum(texts.count(a) - texts.count(b) for a, b in OPENING.items()) + bars


def _begin(tokens: list[Token], place: int, end: int, limit: int) -> int:
    """Where it begins: with a number, a sign or a bracket in front of its first part."""
    begin = place
    while begin > max(0, place - limit):
        before = tokens[begin - 1]
        touches = tokens[begin].space == ""
        texts = [token.text for token in tokens[begin:end]]
        after = tokens[end].text if end < len(tokens) else ""
        if before.text in OPENING and touches:
            closing = OPENING[before.text]
            if texts.count(closing) <= texts.count(before.text) and after != closing:
                break
        elif before.text == "|" and touches:
            if texts.count("|") % 2 == 0 and after != "|":
                break
        elif before.text == "-" and touches and (begin < 2 or tokens[begin - 2].kind == "sign"):
            pass
        elif before.kind == "number":
            if tokens[begin].text not in OPERATORS and begin != place:
                break
        elif before.text in ("/", "+", "-", "=") and begin >= 2:
            if tokens[begin - 2].kind != "number":
                break
        else:
            break
        begin -= 1
    return begin


def _balance(tokens: list[Token], begin: int, end: int) -> int:
    """The end without a bracket that is not closed, or not opened."""
    for number in range(begin, end):
        if _open(tokens[begin : number + 1]) < 0:
            return number
    while end < len(tokens) and _open(tokens[begin:end]) > 0 and tokens[end].text in ")]}⟩|":
        end += 1
    return end


def _mathml(tokens: list[Token]) -> str:
    """A formula."""
    parts: list[str] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.text == "^" and parts and place + 1 < len(tokens):
            exponent, place = _exponent(tokens, place + 1)
            parts[-1] = f"<msup>{parts[-1]}{exponent}</msup>"
            continue
        parts.append(_part(token))
        place += 1
    return f"<math>{''.join(parts)}</math>"


def _exponent(tokens: list[Token], place: int) -> tuple[str, int]:
    """What stands above, without its brackets, and where the formula goes on."""
    if tokens[place].text != "(":
        return _part(tokens[place]), place + 1
    end = place + 1
    while end < len(tokens) and _open(tokens[place:end]) > 0:
        end += 1
    inner = "".join(map(_part, tokens[place + 1 : end - 1]))
    return f"<mrow>{inner}</mrow>", end


def _part(token: Token) -> str:
    """A number, a letter with what belongs to it, or a sign."""
    if token.kind == "number":
        return f"<mn>{token.text}</mn>"
    if token.kind == "name":
        return _name(token.text)
    sign = SIGNS.get(token.text, token.text)
    stretch = ' stretchy="false"' if token.text in "()[]{}|⟨⟩" else ""
    return f"<mo{stretch}>{escape(sign)}</mo>"


def _name(text: str) -> str:
    """A letter or a function, with what stands below and behind it."""
    base, _, below = text.removesuffix("'").partition("_")
    plain = base.rstrip("0123456789")
    digits = base[len(plain) :]
    if plain in LARGE:
        sign = f"<mo movablelimits='true'>{LARGE[plain]}</mo>"
        return f"<munder>{sign}{_index(below)}</munder>" if below else sign
    if plain == "grad":
        made = "<mo>∇</mo>"
    elif plain in FUNCTIONS:
        made = f"<mi>{plain}</mi>"
    else:
        made = f"<mi>{GREEK.get(plain, plain)}</mi>"
    subscripts = digits + below
    if subscripts:
        made = f"<msub>{made}{_index(subscripts)}</msub>"
    if text.endswith("'"):
        made = f"<msup>{made}<mo>\N{PRIME}</mo></msup>"
    return made


def _index(text: str) -> str:
    """A subscript: several letters that are indices, a name, or a number."""
    if text.isdigit():
        return f"<mn>{text}</mn>"
    if "_" in text:
        return _name(text)
    if len(text) > 1 and set(text) <= INDICES:
        return f"<mrow>{''.join(f'<mi>{letter}</mi>' for letter in text)}</mrow>"
    return f"<mi>{GREEK.get(text, text)}</mi>"


ROW = re.compile(r"^ +(?P<who>[a-z]+(?: [a-z](?:, [a-z])*)?):\s+(?P<what>.*)$")
NUMBER = re.compile(
    r"^(?P<line>.*?)(?:\s{2,}|(?<=it) )(?P<number>\([^()]*\)(?: to \(\d+\)|, \(\d+\))?)$"
)


def set_round(text: str) -> str:
    """The pseudo-code of a round as HTML: who does it, what, and the number of the equation.

    Example:
      >>> set_round("each round t:").count("<tr>")
      1
    """
    rows = []
    for line in text.splitlines():
        numbered = NUMBER.match(line)
        line, number = (numbered["line"], numbered["number"]) if numbered else (line, "")
        found = ROW.match(line)
        if found:
            cells = f"<td>{set_formulas(found['who'])}:</td><td>{set_formulas(found['what'])}</td>"
        elif line.startswith(" "):
            deep = max(len(line) - len(line.lstrip()) - 13, 0)
            cells = f"<td></td><td>{'&emsp;' * (deep // 2)}{set_formulas(line.strip())}</td>"
        else:
            cells = f'<td colspan="2">{set_formulas(line)}</td>'
        rows.append(f"<tr>{cells}<td>{number}</td></tr>")
    return '<table class="round">\n' + "\n".join(rows) + "\n</table>"
