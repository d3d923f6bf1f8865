"""The part of a report's page with an answer for each client: what it gains, and who helps it."""

from collections.abc import Sequence
from html import escape

from jaxfl.experiment.html import document
from jaxfl.experiment.html.client_parts import ROWS
from jaxfl.experiment.reading.by_client import Answers
from jaxfl.experiment.reading.client_tables import meaning_of_answer, method_cells, notes_of
from jaxfl.experiment.reading.client_tables import sentences as sentences_of
from jaxfl.experiment.tables.tables import caption


def answer_parts(answers: Sequence[Answers]) -> list[document.Part]:
    """The part with a table for each client; none without answers.

    Args:
      answers: of `reading.by_client.client_answers`, one for each group of runs.
    """
    if not answers:
        return []
    body = "\n".join(_group(one, f"answer-{place}") for place, one in enumerate(answers))
    return [document.Part("answers", "What each client gains", body)]


def _group(answers: Answers, anchor: str) -> str:
    """Links to the clients of runs with the same clients, and the table of each."""
    shown = answers.clients[:ROWS]
    links = [f'<a href="#{anchor}-{client}">{escape(answers.name(client))}</a>' for client in shown]
    body = [document.paragraph(answers.setting, "above")] if answers.setting else []
    body += [f"<nav>{' '.join(links)}</nav>"] if len(links) > 1 else []
    for client in shown:
        cells = method_cells(answers, client)
        name = answers.name(client) if answers.names else f"client {client}"
        rows = [[label, *row] for label, row in cells.rows]
        body.append(f'<h3 id="{anchor}-{client}">{escape(name)}</h3>')
        body.append(document.table(["method", *cells.titles], rows, best=cells.best))
        body.append(document.paragraph(" ".join(sentences_of(answers, client))))
    sentence = caption(meaning_of_answer(answers), ["difference", "interval", "gains"])
    notes = [f"{sentence[0].upper()}{sentence[1:]}.", *notes_of(answers)]
    if len(answers.clients) > ROWS:
        notes.append(f"These are the first {ROWS:,} clients; clients.csv has all (--out).")
    return "\n".join([*body, *(document.paragraph(note, "caption") for note in notes)])
