"""Shares of the slow tests, of which continuous integration runs one, another with each commit."""

import collections
import re

SECONDS = 5  # of a slow test on two idle cores, unless its marker says `slow(seconds=60)`


def which(text):
    """The share that `--slow-share` names: "3/7" is the third of seven.

    Returns:
      Its number, from 0, and how many there are.

    Raises:
      ValueError: for anything else.
    """
    numbers = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    if numbers:
        place, number = map(int, numbers.groups())
        if 1 <= place <= number:
            return place - 1, number
    raise ValueError(f"--slow-share takes I/N with 1 <= I <= N, for example 3/7, not {text!r}")


def divide(seconds, number):
    """Puts each key into one share, so that all shares take about as long.

    The longest key comes first, and each goes to the share that has least until then.

    Args:
      seconds: how long each takes, by key.
      number: of shares.

    Returns:
      The share of each key, from 0. The order in which `seconds` was filled does not matter.
    """
    total = [0.0] * number
    share = {}
    for key in sorted(seconds, key=lambda key: (-seconds[key], key)):
        share[key] = total.index(min(total))
        total[share[key]] += seconds[key]
    return share


def others(items, place, number):
    """The slow tests that are not in this share.

    Slow tests of one algorithm are in one share, since they share compiled programs.

    Args:
      items: pytest's tests, with their markers.
      place: of the share, from 0.
      number: of shares.
    """
    unit, seconds = {}, collections.Counter()
    for item in items:
        slow, group = (item.get_closest_marker(name) for name in ("slow", "xdist_group"))
        if slow:
            unit[item.nodeid] = group.args[0] if group else item.nodeid
            seconds[unit[item.nodeid]] += slow.kwargs.get("seconds", SECONDS)
    share = divide(seconds, number)
    left_out = {nodeid for nodeid in unit if share[unit[nodeid]] != place}
    return [item for item in items if item.nodeid in left_out]
