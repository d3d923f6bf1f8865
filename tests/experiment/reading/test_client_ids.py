"""Which client a user means, by id or by name."""

import pytest

from jaxfl.core.errors import InputError
from jaxfl.experiment.reading.client_ids import id_of, id_or_name

NAMES = ["north", "south"]


@pytest.mark.parametrize(
    ("client", "names", "message"),
    [
        (2, [], "client is 2: expected an id from 0 to 1$"),
        (-1, NAMES, "client is -1: expected an id from 0 to 1, or one of the names north, south"),
        ("nort", NAMES, "client is nort: did you mean north"),
        ("east", [], "client is east: expected an id from 0 to 1$"),
    ],
)
def test_a_client_that_is_not_there_is_refused(client, names, message):
    with pytest.raises(InputError, match=message):
        id_of(client, names, 2)


def test_a_word_of_the_command_line_is_an_id_unless_a_client_has_a_number_for_its_name():
    assert [id_of(id_or_name(word, NAMES), NAMES, 2) for word in ("1", "north")] == [1, 0]
    numbers = ["7", "0"]
    assert [id_of(id_or_name(word, numbers), numbers, 2) for word in ("7", "0")] == [0, 1]
    # Arabic digits are no id.
    assert id_or_name("٣", NAMES) == "٣"
