"""Progress of slow reading, on the terminal: imported where a data set is prepared."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from threading import Timer

# (items, what is done with them, how many there are) -> the same items; shows how many are done.
Track = Callable[[Iterable, str, int | None], Iterable]

DELAY = 2.0  # seconds before progress is shown


def no_progress(items: Iterable, text: str, total: int | None = None) -> Iterable:
    """The items; shows nothing."""
    return items


@contextlib.contextmanager
def show_progress(title: str) -> Iterator[Track]:
    """Gives a function that passes items on and shows how many of them are done.

    Nothing is shown in the first two seconds, or if standard error is not a terminal.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(file=sys.stderr)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task(title, total=None)
    timer = Timer(DELAY, bar.start)
    timer.daemon = True

    def track(items: Iterable, text: str, total: int | None = None) -> Iterable:
        bar.update(task, description=f"{title}: {text}", total=total, completed=0)
        return count_up(items)

    def count_up(items: Iterable) -> Iterator:
        for number, item in enumerate(items):
            if number % 64 == 0:
                bar.update(task, completed=number)
            yield item

    if console.is_terminal:
        timer.start()
    try:
        yield track
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if bar.live.is_started:
            bar.stop()
