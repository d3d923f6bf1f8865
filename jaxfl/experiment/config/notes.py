"""What the hint of an option says beside its type and range: the notes of its field.

A note stands in the `Annotated` hint. It says which names a text may be, which other options an
option needs or excludes, how headings call it, and what depends on it. `effects` checks the notes,
`tables.heading` makes headings of them, and no other module names an option for such a reason.
"""

from dataclasses import dataclass
from typing import Any

# In place of the values of another option: any value but its default.
GIVEN = object()


class Others:
    """Other options and their values, of which one is enough.

    Args:
      others: option -> `GIVEN`, a value, or a tuple of values.
    """

    def __init__(self, **others: Any):
        self.others = {
            name: value if isinstance(value, tuple) or value is GIVEN else (value,)
            for name, value in others.items()
        }

    def hold(self, options: dict[str, Any], defaults: dict[str, Any]) -> bool:
        """Whether one of the others has such a value.

        Args:
          options: values by name; an option that is absent has no such value.
          defaults: of all options.
        """
        return any(
            options[name] != defaults[name] if values is GIVEN else options[name] in values
            for name, values in self.others.items()
            if name in options
        )


class Effect(Others):
    """The option has an effect only where one of the others has such a value.

    None among the values stands for one that the data set will choose.

    Example:
      >>> decay = Effect(schedule=("exponential", "step"))
      >>> decay.hold({"schedule": "cosine"}, {"schedule": "constant"})
      False
    """


class Needs(Others):
    """The option is refused where none of the others has such a value.

    Args:
      why: for the message: what the other option is to this one.
      when: the value of the option that needs them; None if every value but the default does.
      others: as in `Others`.
    """

    def __init__(self, *, why: str = "", when: Any = None, **others: Any):
        super().__init__(**others)
        self.why, self.when = why, when


@dataclass(frozen=True)
class Excludes:
    """The option is refused together with another one."""

    other: str
    # for the message: what there is to choose
    choose: str = "choose one"
    # the value of the option that excludes the other; None if every value but the default does,
    # and the two are alternatives: one that is typed replaces the other of a file or a preset
    when: Any = None


@dataclass(frozen=True)
class Heading:
    """How headings of tables and captions of pictures call the option.

    Example:
      >>> Heading("{percent:g} % unseen", "clients").text(0.25)
      '25 % unseen'
      >>> Heading("{} round(s)", "rounds").text(1)
      '1 round'
    """

    # with {} for the value, {percent} for a hundred times it, and (s) for the plural
    words: str
    # the part of a heading that it belongs to, see `tables.heading`
    part: str = ""
    # the option behind which it stands in parentheses, in place of a part
    behind: str = ""
    # whether the default is told too
    always: bool = False
    # where alone it is told; by default where the option has an effect
    where: Effect | None = None
    # an option that is told in place of this one where it is given
    unless: str = ""

    def text(self, value: Any) -> str:
        """The words for a value of the option."""
        number = isinstance(value, int | float)
        plural = "" if value == 1 else "s"
        words = self.words.replace("(s)", plural)
        return words.format(value, percent=100 * value if number else None)


@dataclass(frozen=True)
class Mark:
    """A kind of options, of which each one bears the mark."""

    meaning: str


NO_SCORE = Mark("changes no score: it says how a run is made and kept")
RESUMABLE = Mark("may change when a stopped run goes on: the result is the same, or has more of it")
OF_CLIENTS = Mark("decides who the clients are, or whose scores count")
INPUT = Mark("a file that a run reads: checkpoints have its digest, and resume refuses another one")
PATH = Mark("a path, which config.json has in full")
