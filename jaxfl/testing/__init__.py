"""What every method owes, as functions for authors of plug-ins: small federations and rules.

May import `core`, `models`, `training`, `uplink`, `simulation`, `experiment`. Imported when it is
asked for. Needs no pytest: a rule that a method breaks raises an `AssertionError` that says what
was expected. The library's own tests hold every method against the same rules. A new rule goes to
the file of its subject, and into `RULES`:

- `program`: what the program of a round shows before anything is computed
- `message_rules`: what clients and server see of each other
- `results`: what rounds give, run in different ways
- `failures`: clients whose uploads are lost, lies or not finite
- `learning`: what clients learn
"""

from jaxfl.testing.method import RULES, check_method

__all__ = ["RULES", "check_method"]
