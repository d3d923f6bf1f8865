"""How processes find each other before JAX starts: each says what it waits for, or what is wrong.

Process 0 listens at the coordinator's port. Each other process sends a line of JSON and gets one
back when all are there. After that the port is free again, and JAX's own service takes it.
"""

import errno
import json
import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, cast

from jaxfl.core.errors import InputError, check
from jaxfl.core.text import visible
from jaxfl.core.version import VERSION

# Seconds until a process says what it waits for.
PATIENCE = 2
# Seconds between two attempts to reach process 0.
PAUSE = 0.3
# Seconds until an attempt to connect, or a greeting on the way, counts as failed.
ATTEMPT = 5
# Bytes that a greeting may take: whoever reaches the port can send one.
GREETING = 4096
# Processes at most.
MOST = 1_000_000
# Bytes that the answer may take.
LONGEST = 100_000_000


class Stranger(NamedTuple):
    """A connection at the port of process 0, before it has said who it is."""

    said: bytearray
    deadline: float


Selector = selectors.BaseSelector


def meet(
    coordinator: str, processes: int, process: int, timeout: float, tell: Callable[[str], None]
) -> list[str]:
    """Returns when all processes are there.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: their number.
      process: index of this process.
      timeout: seconds to wait for the others.
      tell: is given a line about what this process waits for, where it waits for long.

    Returns:
      The name of the host of each process.

    Raises:
      InputError: a process did not come in time, or the processes were not started alike.

    Example:
      >>> len(meet("localhost:8476", processes=1, process=0, timeout=1.0, tell=print))
      1
    """
    deadline = time.monotonic() + timeout
    if process == 0:
        return _receive(coordinator, processes, deadline, timeout, tell)
    return _approach(coordinator, processes, process, deadline, timeout, tell)


def _greeting(processes: int, process: int) -> dict:
    host = socket.gethostname()
    return {"jaxfl": VERSION, "processes": processes, "process": process, "host": host}


def _receive(
    coordinator: str,
    processes: int,
    deadline: float,
    timeout: float,
    tell: Callable[[str], None],
) -> list[str]:
    """Process 0: waits for the others, then answers all of them."""
    host, port = split(coordinator)
    with suppress(OSError), _known(coordinator):
        socket.getaddrinfo(host, port)
    lines: dict[int, dict] = {0: _greeting(processes, 0)}
    connections: dict[int, socket.socket] = {}
    strangers: dict[socket.socket, Stranger] = {}
    patience, told = time.monotonic() + PATIENCE, ""
    problem = ""
    with _listen(port) as listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        try:
            while len(lines) < processes and not problem:
                missing = [number for number in range(processes) if number not in lines]
                name = _names(missing, processes)
                now = time.monotonic()
                if now > deadline:
                    problem = (
                        f"{name} did not come to {coordinator} within {timeout:g} s: start it with "
                        "the same --coordinator and --processes, or give a longer --join-timeout"
                    )
                    break
                if now > patience and name != told:
                    tell(f"waiting for {name} at {coordinator}{_doubt(coordinator)}")
                    told = name
                for late in [one for one, stranger in strangers.items() if now > stranger.deadline]:
                    _dismiss(late, strangers, selector)
                for key, _ in selector.select(PAUSE):
                    connection = cast(socket.socket, key.fileobj)
                    if connection is listener:
                        _receive_stranger(listener, strangers, selector)
                    elif connection in strangers:
                        problem = problem or _hear(
                            connection, strangers, lines, connections, selector
                        )
                    else:
                        # A process that waits says nothing more: it has gone.
                        number = key.data
                        selector.unregister(connection)
                        connections.pop(number).close()
                        del lines[number]
            hosts = [lines[number]["host"] for number in sorted(lines)]
            answer = {"error": problem} if problem else {"hosts": hosts}
            for connection in connections.values():
                _send(connection, answer)
        finally:
            for connection in (*connections.values(), *strangers):
                connection.close()
    check(not problem, problem)
    return hosts


def _receive_stranger(
    listener: socket.socket, strangers: dict[socket.socket, Stranger], selector: Selector
) -> None:
    """Takes up a connection, of which nothing is known yet."""
    with suppress(OSError):
        connection, _ = listener.accept()
        connection.setblocking(False)
        strangers[connection] = Stranger(bytearray(), time.monotonic() + ATTEMPT)
        selector.register(connection, selectors.EVENT_READ)


def _dismiss(
    connection: socket.socket, strangers: dict[socket.socket, Stranger], selector: Selector
) -> None:
    """Closes a connection to what is none of the processes."""
    selector.unregister(connection)
    connection.close()
    del strangers[connection]


def _hear(
    connection: socket.socket,
    strangers: dict[socket.socket, Stranger],
    lines: dict[int, dict],
    connections: dict[int, socket.socket],
    selector: Selector,
) -> str:
    """Hears what a stranger says; returns what is wrong with how a process was started."""
    said = strangers[connection].said
    try:
        part = connection.recv(GREETING)
    except OSError:
        part = b""
    said += part
    if part and b"\n" not in said and len(said) < GREETING:
        return ""
    line = _parse_greeting(bytes(said[:GREETING]))
    if line is None:
        _dismiss(connection, strangers, selector)
        return ""
    number, mine = line["process"], lines[0]
    problem = ""
    if line["processes"] != mine["processes"]:
        of = line["processes"]
        problem = f"process {number} has --processes {of}, process 0 has {mine['processes']}"
    elif line["jaxfl"] != mine["jaxfl"]:
        problem = f"process {number} has jaxfl {line['jaxfl']}, process 0 has {mine['jaxfl']}"
    elif number in lines:
        hosts = f"{lines[number]['host']} and {line['host']}"
        problem = f"process {number} was started twice, on {hosts}"
    if problem:
        problem = visible(f"{problem}: start all alike, each with its own --process")
        _send(connection, {"error": problem})
        _dismiss(connection, strangers, selector)
        return problem
    del strangers[connection]
    lines[number] = line
    connections[number] = connection
    selector.modify(connection, selectors.EVENT_READ, number)
    return ""


def _parse_greeting(said: bytes) -> dict | None:
    """What another process says of itself; None if it is something else."""
    try:
        line = json.loads(said)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict):
        return None
    numbers = [line.get(name) for name in ("process", "processes")]
    texts = [line.get(name) for name in ("jaxfl", "host")]
    valid = all(type(number) is int and 0 <= number < MOST for number in numbers) and all(
        isinstance(text, str) and len(text) < GREETING // 8 for text in texts
    )
    return line if valid and line["process"] < line["processes"] else None


def _approach(
    coordinator: str,
    processes: int,
    process: int,
    deadline: float,
    timeout: float,
    tell: Callable[[str], None],
) -> list[str]:
    """Any process but 0: knocks until process 0 is there, then waits for its answer."""
    host, port = split(coordinator)
    patience, told, reason = time.monotonic() + PATIENCE, "", ""
    while True:
        now = time.monotonic()
        check(
            now < deadline,
            f"process 0 did not answer at {coordinator} within {timeout:g} s ({reason}): start it "
            "there, name its host and port with --coordinator, or give a longer --join-timeout",
        )
        if now > patience and reason != told:
            tell(f"waiting for process 0 of {processes} at {coordinator} ({reason})")
            told = reason
        try:
            wait = min(ATTEMPT, deadline - now)
            with _known(coordinator):
                connection = socket.create_connection((host, port), timeout=wait)
            with connection:
                _send(connection, _greeting(processes, process))
                answer = _wait_for_answer(connection, coordinator, deadline, tell)
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"what answers at {coordinator} is another program than process 0: name the host "
                "and a free port of process 0 with --coordinator"
            ) from error
        except OSError as error:
            reason = error.strerror or "no answer"
        else:
            if "error" in answer:
                raise InputError(visible(str(answer["error"])))
            return answer["hosts"]
        time.sleep(PAUSE)


def _wait_for_answer(
    connection: socket.socket, coordinator: str, deadline: float, tell: Callable[[str], None]
) -> dict:
    """What process 0 says when all have come.

    Raises:
      OSError: it said nothing, and has gone.
      ValueError: another program answered.
    """
    connection.settimeout(PATIENCE)
    # Process 0 says who is missing, and ends the wait; its clock may be behind this one.
    if not select.select([connection], [], [], PATIENCE)[0]:
        tell(f"waiting for other processes, as process 0 does at {coordinator}")
        # In short waits, between which Python can handle a signal.
        while time.monotonic() < deadline + ATTEMPT:
            if select.select([connection], [], [], PAUSE)[0]:
                break
    answer = _read(connection)
    if not isinstance(answer, dict) or not {"error", "hosts"} & set(answer):
        raise ValueError("no answer of process 0")
    return answer


def split(coordinator: str) -> tuple[str, int]:
    """Host and port of a coordinator.

    Raises:
      InputError: it is not HOST:PORT.

    Example:
      >>> split("host0:1234"), split("[::1]:1234")
      (('host0', 1234), ('::1', 1234))
    """
    host, colon, port = coordinator.rpartition(":")
    valid = colon and host and port.isdecimal() and 0 < int(port) < 2**16
    check(
        bool(valid),
        f"the coordinator is {coordinator!r}: expected HOST:PORT, as localhost:8476",
    )
    return host.strip("[]"), int(port)


@contextmanager
def _known(coordinator: str) -> Iterator[None]:
    """Within, a host that nobody knows is an `InputError`.

    In Kubernetes it is the `OSError` that it was: names of a job appear as its pods do.
    """
    try:
        yield
    except (socket.gaierror, UnicodeError) as error:
        if "KUBERNETES_SERVICE_HOST" in os.environ and isinstance(error, OSError):
            raise
        raise InputError(
            f"the host of the coordinator {coordinator} is unknown: expected HOST:PORT of process 0"
        ) from error


def _doubt(coordinator: str) -> str:
    """What process 0 says of a coordinator that is another host; "" if it reaches itself there."""
    try:
        socket.create_connection(split(coordinator), timeout=PATIENCE).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        return f" (where process 0 does not reach itself: {reason})"
    return ""


def _listen(port: int) -> socket.socket:
    """A socket at this port of all addresses of the host.

    Raises:
      InputError: the port is not free.
    """
    try:
        if socket.has_dualstack_ipv6():
            family = socket.AF_INET6
            return socket.create_server(("", port), family=family, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise InputError(
            f"process 0 cannot listen at port {port} of this host ({reason}): choose another port "
            "with --coordinator, the same for all processes"
        ) from error


def _send(connection: socket.socket, line: dict) -> None:
    """Sends a line; a process that has gone does not get it."""
    with suppress(OSError):
        connection.settimeout(ATTEMPT)
        connection.sendall(json.dumps(line).encode() + b"\n")


def _read(connection: socket.socket) -> dict:
    """The line that the other side has sent.

    Raises:
      OSError: it did not send a line.
      ValueError: it is no line of a greeting.
    """
    with connection.makefile("rb") as stream:
        line = stream.readline(LONGEST)
    if not line:
        raise ConnectionResetError(errno.ECONNRESET, "it hung up")
    return json.loads(line)


def _names(missing: list[int], processes: int) -> str:
    """Processes in words.

    Example:
      >>> _names([1], 2), _names([1, 2, 3, 4, 5], 8)
      ('process 1 of 2', 'processes 1, 2, 3, ... of 8')
    """
    if len(missing) == 1:
        return f"process {missing[0]} of {processes}"
    numbers = ", ".join(map(str, missing[:3])) + (", ..." if len(missing) > 3 else "")
    return f"processes {numbers} of {processes}"
