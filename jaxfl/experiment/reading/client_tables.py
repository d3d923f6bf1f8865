"""Tables, sentences and records of what each client gains, and whose models it is given."""

import math
from collections.abc import Collection
from typing import Any

from jaxfl.experiment.reading.by_client import VISIBLE, Answers, Senders
from jaxfl.experiment.reading.gains import Result
from jaxfl.experiment.tables.sections import Section
from jaxfl.experiment.tables.tables import Cells, Meaning, best_places
from jaxfl.simulation.metrics import metric_of

STRONGEST = 3  # senders that are named
MARKS = {"yes": " +", "no": " -", "unclear": "", "-": ""}  # behind a score


def client_sections(answers: Answers) -> list[Section]:
    """The tables of all clients, or of the only one that is shown.

    Args:
      answers: of `reading.by_client.client_answers`.
    """
    if len(answers.clients) == 1:
        client = answers.clients[0]
        lines = (*sentences(answers, client), *answers.notes)
        cells, meaning = method_cells(answers, client), meaning_of_answer(answers)
        title = _heading(answers, f"client {answers.name(client)}")
        return [Section(title, cells, meaning, [], lines=lines)]
    tables = [_overview(answers)]
    for label in list(answers.algorithms)[1:]:
        tables.append(_differences(answers, label))
        if is_mixed(answers, label) and not _common(answers, label):
            tables.append(_mixtures(answers, label))
    return tables


def method_cells(answers: Answers, client: int) -> Cells:
    """A row for each run with what it is for one client, in the order of the runs."""
    metric = metric_of(answers.measure)
    rows = []
    for label in answers.algorithms:
        senders = answers.senders[label].get(client)
        others = "-" if senders is None else _strongest(answers, senders)
        own = "-" if senders is None else f"{senders.own:.2f}"
        rows.append((label, [*_cells(answers, label, client), own, others]))
    scores = [row[0] for _, row in rows]
    best = frozenset((place, 0) for place in _best(answers, client, scores))
    titles = [metric.title, "difference", "interval", "gains", "own weight", "senders"]
    return Cells(titles, rows, best)


def sentences(answers: Answers, client: int) -> list[str]:
    """What a reader wants to know of a client, first whether it gains.

    Such as "site3 gains from pfedgraph.", "site3: pfedgraph 0.810 AUC, 0.060 better than alone
    (95 % interval 0.010 to 0.110)." and "In pfedgraph site3's model is 0.55 its own, 0.30 site1's,
    0.15 site4's."

    Args:
      answers: of `reading.by_client.client_answers`.
      client: its id, one of `answers.clients`.
    """
    labels = list(answers.algorithms)[1:]
    texts = [_verdict(answers, client), _holding_sentence(answers, client)]
    if not answers.malicious[client]:
        texts += [_result_sentence(answers, label, client) for label in labels]
    for label in labels:
        senders = answers.senders[label].get(client)
        if senders is not None and is_mixed(answers, label):
            texts.append(_sender_sentence(answers, label, client, senders))
    return [text for text in texts if text]


def client_records(answers: Answers) -> list[dict[str, Any]]:
    """A record for each client and run; None where a value is unknown or not defined."""
    records = []
    for client in answers.clients:
        holding = answers.holdings[client]
        about: dict[str, Any] = {"setting": answers.setting} if answers.setting else {}
        about |= {"client": answers.name(client), "train": holding.train, "test": holding.test}
        if answers.positive:
            train, test = holding.positives or (None, None)
            about |= {"train_positives": train, "test_positives": test}
        about |= {"malicious": bool(answers.malicious[client])}
        about |= {"unseen": bool(answers.unseen[client])}
        for label, algorithm in answers.algorithms.items():
            result = answers.results[label][client]
            names = ("score", "difference", "low", "high")
            numbers = {name: _number(getattr(result, name)) for name in names}
            record = about | {"run": label, "algorithm": algorithm}
            record |= {"measure": metric_of(answers.measure).name, "score": numbers["score"]}
            record |= {"against": answers.reference, **numbers}
            record |= {"gains": None if result.gains == "-" else result.gains}
            records.append(record | _sender_record(answers, answers.senders[label].get(client)))
    return records


def is_mixed(answers: Answers, label: str) -> bool:
    """Whether the model of a client that is shown has weight of another client's."""
    return any(senders.others for senders in answers.senders[label].values())


def notes_of(answers: Answers) -> list[str]:
    """What a reader must know of all tables."""
    notes = list(answers.notes)
    for word, mask in (("malicious", answers.malicious), ("in no round (unseen)", answers.unseen)):
        names = [answers.name(client) for client in answers.clients if mask[client]]
        notes += [f"Clients that are {word}: {', '.join(names)}."] if names else []
    return notes


def _overview(answers: Answers) -> Section:
    """The sizes of the clients and their scores by all runs."""
    labels = list(answers.algorithms)
    rows = []
    best = []
    for place, client in enumerate(answers.clients):
        scores = [_score(answers, answers.results[label][client]) for label in labels]
        marks = [MARKS[answers.results[label][client].gains] for label in labels]
        sizes = list(_sizes(answers, client))
        marked = [score + mark for score, mark in zip(scores, marks, strict=True)]
        rows.append((answers.name(client), [*sizes, *marked]))
        best += [(place, 2 + column) for column in _best(answers, client, scores)]
    of_them = f" (of them {answers.positive})" if answers.positive else ""
    metric = metric_of(answers.measure)
    over = f", mean over {answers.members}" if answers.seeds > 1 else ""
    meaning: Meaning = [
        ("", f"train, test: examples{of_them}"),
        ("", f"{', '.join(labels)}: test {metric.name} of the deployed models{over}"),
        ("", f"+ gains against {answers.reference}, - does not, by the interval below"),
    ]
    cells = Cells(["train", "test", *labels], rows, frozenset(best))
    title = _heading(answers, "scores of each client")
    return Section(title, cells, meaning, [], first="client", lines=tuple(notes_of(answers)))


def _differences(answers: Answers, label: str) -> Section:
    """What each client gains by a run."""
    rows = []
    counts = dict.fromkeys(MARKS, 0)
    for client in answers.clients:
        alone = _score(answers, answers.results[answers.reference][client])
        rows.append((answers.name(client), [alone, *_cells(answers, label, client)]))
        counts[answers.results[label][client].gains] += 1
    words = {"-": "without a score here or there"}
    texts = [f"{count} {words.get(one, one)}" for one, count in counts.items() if count]
    cells = Cells([answers.reference, label, "difference", "interval", "gains"], rows)
    title = f"{label} against {answers.reference}"
    meaning = meaning_of_answer(answers)
    lines = (f"Gains: {', '.join(texts)}.", *_common(answers, label))
    return Section(title, cells, meaning, [], narrows=False, first="client", lines=lines)


def _mixtures(answers: Answers, label: str) -> Section:
    """Whose models each client's model is made of in a run."""
    rows = []
    for client in answers.clients:
        senders = answers.senders[label].get(client)
        cells = ["-"] * (STRONGEST + 2)
        if senders is not None:
            texts = [f"{answers.name(one)} {weight:.2f}" for one, weight in senders.others]
            texts = texts[:STRONGEST] + ["-"] * (STRONGEST - len(texts))
            cells = [f"{senders.own:.2f}", *texts, f"{_rest(senders):.2f}"]
        rows.append((answers.name(client), cells))
    title = f"{label}: whose models each client's model is made of"
    ordinals = ["strongest sender", "second", "third"]
    cells = Cells(["own", *ordinals, "others"], rows)
    meaning: Meaning = [("own", "weight of the client's own model"), ("", _origin(answers, label))]
    return Section(title, cells, meaning, [], first="client")


def _common(answers: Answers, label: str) -> list[str]:
    """A sentence where all clients are given one mixture; none where they are not."""
    mixtures = [
        {client: round(senders.own, 5)} | {one: round(weight, 5) for one, weight in senders.others}
        for client, senders in answers.senders[label].items()
    ]
    mixtures = [{one: x for one, x in each.items() if x >= VISIBLE} for each in mixtures]
    if not mixtures or len(mixtures) < 2 or any(one != mixtures[0] for one in mixtures):
        return []
    weights = sorted(mixtures[0].items(), key=lambda pair: (-pair[1], pair[0]))
    texts = [f"{answers.name(one)} {weight:.2f}" for one, weight in weights[:STRONGEST]]
    texts += ["others less"] if len(weights) > STRONGEST else []
    return [f"All clients are given one mixture of models: {', '.join(texts)}."]


def _origin(answers: Answers, label: str) -> str:
    """Which weights these are."""
    parts = {senders.part for senders in answers.senders[label].values() if senders.part}
    text = "weights of the last round in which the client took part"
    first = "fold" if "fold" in answers.members else "seed"
    text += f", of the first {first}" if answers.seeds > 1 else ""
    if parts:
        text += f", of the part of its model that is its own least ({', '.join(sorted(parts))})"
    return text


def meaning_of_answer(answers: Answers) -> Meaning:
    """What the columns of differences mean."""
    metric = metric_of(answers.measure)
    direction = "" if metric.better == "higher" else ", positive where it is lower"
    kind = (
        f"paired t-test over {answers.members}"
        if answers.seeds > 1
        else "bootstrap over the client's test examples, which says nothing about other seeds"
    )
    return [
        ("difference", f"test {metric.name} less that of {answers.reference}{direction}"),
        ("interval", f"of 95 %, {kind}"),
        ("gains", "whether the interval is above 0 (yes), not above 0 (no), or it is unclear"),
    ]


def _heading(answers: Answers, what: str) -> str:
    return f"{answers.heading}: {what}" if answers.heading else what


def _cells(answers: Answers, label: str, client: int) -> list[str]:
    """The score of a client, its difference, the interval, and whether it gains."""
    result = answers.results[label][client]
    form = f"+{metric_of(answers.measure).format}"
    known = [not math.isnan(one) for one in (result.difference, result.low)]
    difference = f"{result.difference + 0.0:{form}}" if known[0] else "-"
    interval = f"{result.low + 0.0:{form}} to {result.high + 0.0:{form}}" if known[1] else "-"
    return [_score(answers, result), difference, interval, result.gains]


def _score(answers: Answers, result: Result) -> str:
    metric = metric_of(answers.measure)
    return "-" if math.isnan(result.score) else f"{result.score:{metric.format}}"


def _sizes(answers: Answers, client: int) -> tuple[str, str]:
    """The training and the test examples of a client, with the positive ones behind."""
    holding = answers.holdings[client]
    if holding.positives is None:
        train, test = ("-" if one is None else str(one) for one in (holding.train, holding.test))
        return train, test
    train_positives, test_positives = holding.positives
    return f"{holding.train} ({train_positives})", f"{holding.test} ({test_positives})"


def _rest(senders: Senders) -> float:
    """The weight of the senders that are not named."""
    return max(0.0, 1 - senders.own - sum(weight for _, weight in senders.others[:STRONGEST]))


def _strongest(answers: Answers, senders: Senders) -> str:
    names = [f"{answers.name(one)} {weight:.2f}" for one, weight in senders.others[:STRONGEST]]
    return ", ".join(names) or "none"


def _sender_record(answers: Answers, senders: Senders | None) -> dict[str, Any]:
    """The weight of a client's own model and its strongest senders, as flat values."""
    record: dict[str, Any] = {"own_weight": None if senders is None else _number(senders.own)}
    others = [] if senders is None else senders.others
    for place in range(STRONGEST):
        name, weight = others[place] if place < len(others) else (None, None)
        record[f"sender_{place + 1}"] = None if name is None else answers.name(name)
        record[f"weight_{place + 1}"] = None if weight is None else _number(weight)
    return record


def _number(value: float) -> float | None:
    return round(value, 6) + 0.0 if math.isfinite(value) else None


def _called(answers: Answers, client: int) -> str:
    """A client in a sentence."""
    return answers.name(client) if answers.names else f"client {client}"


def _best(answers: Answers, client: int, scores: list[str]) -> Collection[int]:
    """The places of the best scores of a client; none where no run is clearly better or worse."""
    found = [answers.results[label][client].gains for label in list(answers.algorithms)[1:]]
    return best_places(scores, answers.measure) if {"yes", "no"} & {*found} else []


def _verdict(answers: Answers, client: int) -> str:
    """Whether a client gains, and from which runs, the best first; "" if that is not defined."""
    results = {label: answers.results[label][client] for label in list(answers.algorithms)[1:]}
    found = [result.gains for result in results.values()]
    if answers.malicious[client] or {*found} <= {"-"}:
        return ""
    name = _called(answers, client)
    better = [label for label, result in results.items() if result.gains == "yes"]
    better.sort(key=lambda label: -results[label].difference)
    if better:
        return f"{name} gains from {' and from '.join(better)}."
    if "unclear" in found:
        return f"For {name} it is unclear whether anything is better than {answers.alone}."
    return f"{name} gains from nothing here."


def _holding_sentence(answers: Answers, client: int) -> str:
    """What a client holds, and its role if it has one; "" if nothing is known."""
    holding = answers.holdings[client]
    name = _called(answers, client)
    texts = []
    if holding.train is not None:
        train, test = _sizes(answers, client)
        of_them = f" (of them {answers.positive})" if holding.positives else ""
        texts.append(f"{name} has {train} training and {test} test examples{of_them}.")
    if answers.malicious[client]:
        texts.append(f"{name} is malicious, so that it has no score.")
    elif answers.unseen[client]:
        texts.append(f"{name} takes part in no round.")
    return " ".join(texts)


def _result_sentence(answers: Answers, label: str, client: int) -> str:
    """How good a run is for a client, beside the reference."""
    result = answers.results[label][client]
    metric = metric_of(answers.measure)
    name = _called(answers, client)
    if math.isnan(result.score):
        reason = "not defined on its test examples, or not evaluated"
        return f"{name}: {label} has no {metric.title} ({reason})."
    unit = " %" if metric.percent else ""
    text = f"{name}: {label} {_score(answers, result)}{unit} {metric.title}"
    if math.isnan(result.difference):
        return f"{text}; {answers.reference} has none."
    beside = _comparison(result, metric.format)
    return f"{text}, {beside} {answers.alone}{_interval(result, metric.format)}."


def _comparison(result: Result, form: str) -> str:
    size = f"{abs(result.difference):{form}}"
    if float(size) == 0:
        return "as good as"
    return f"{size} {'better' if result.difference > 0 else 'worse'} than"


def _interval(result: Result, form: str) -> str:
    if math.isnan(result.low):
        return ""
    low, high = (f"{abs(one):{form}}" for one in (result.low, result.high))
    if result.low < 0 < result.high:
        return f" (95 % interval {low} worse to {high} better)"
    if result.difference < 0:
        low, high = high, low
    return f" (95 % interval {low} to {high})"


def _sender_sentence(answers: Answers, label: str, client: int, senders: Senders) -> str:
    part = f" ({senders.part})" if senders.part else ""
    text = f"In {label}{part} {_called(answers, client)}'s model is"
    if not senders.others:
        return f"{text} its own alone."
    # A single one that is left is named too.
    count = len(senders.others) if len(senders.others) == STRONGEST + 1 else STRONGEST
    named = senders.others[:count]
    pieces = [f"{senders.own:.2f} its own"]
    pieces += [f"{weight:.2f} {_called(answers, one)}'s" for one, weight in named]
    further = len(senders.others) - len(named)
    if further:
        pieces.append(f"{_rest(senders):.2f} of {further} others")
    return f"{text} {', '.join(pieces)}."
