"""Processes that find each other, or say why they do not; threads play the processes."""

import contextlib
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxfl.core.errors import InputError
from jaxfl.core.version import VERSION
from jaxfl.simulation import rendezvous
from jaxfl.simulation.rendezvous import meet


@pytest.fixture
def coordinator():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.1)
    monkeypatch.setattr(rendezvous, "PAUSE", 0.02)


def together(coordinator, *, processes, numbers, timeout=1.0):
    """What each process gets or is told, and the lines that it says."""
    lines = {number: [] for number in numbers}

    def one(number):
        try:
            return meet(coordinator, processes, number, timeout, lines[number].append)
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(one, numbers)), lines


@pytest.mark.parametrize("processes", [2, 4])
def test_all_processes_meet_and_know_each_others_hosts(coordinator, processes):
    for _ in range(2):  # the port is free again
        answers, _ = together(
            coordinator, processes=processes, numbers=range(processes), timeout=9.0
        )
        assert answers == [[socket.gethostname()] * processes] * processes


def test_a_missing_process_is_named_while_the_others_wait_and_when_they_give_up(coordinator):
    answers, lines = together(coordinator, processes=3, numbers=[0, 1])
    assert answers[0] == answers[1]
    assert answers[0].startswith(f"process 2 of 3 did not come to {coordinator} within 1 s: ")
    assert f"waiting for process 2 of 3 at {coordinator}" in lines[0]
    assert len(lines[1]) == 1


def test_a_process_that_comes_late_and_one_that_went_are_waited_for(coordinator):
    with ThreadPoolExecutor(4) as pool:

        def start(number):
            return pool.submit(meet, coordinator, 4, number, 9.0, lambda line: None)

        early = [start(0), start(1)]
        time.sleep(0.2)  # until the first one listens
        gone = socket.create_connection(rendezvous.split(coordinator))
        greeting = {"jaxfl": VERSION, "processes": 4, "process": 2, "host": "other"}
        gone.sendall(json.dumps(greeting).encode() + b"\n")
        gone.close()
        # What is no process is not taken for one.
        for content in (b"GET / HTTP/1.1\r\n\r\n", b'{"process": 2}\n', b"[]\n", b"\xff\n", b""):
            with socket.create_connection(rendezvous.split(coordinator)) as scan:
                scan.sendall(content)
        time.sleep(0.3)
        late = [start(3)]
        time.sleep(0.3)
        assert not early[0].done()
        late.append(start(2))
        hosts = [socket.gethostname()] * 4
        assert [done.result() for done in early + late] == [hosts] * 4


def test_nobody_at_the_port(coordinator):
    answers, lines = together(coordinator, processes=2, numbers=[1], timeout=0.5)
    assert answers[0].startswith(f"process 0 did not answer at {coordinator} within 0.5 s (")
    assert "refused" in lines[1][0]


@pytest.mark.parametrize("process", [0, 1])
def test_a_host_that_nobody_knows(process):
    with pytest.raises(InputError, match=r"coordinator no\.such\.host\.invalid:99 is unknown"):
        meet("no.such.host.invalid:99", 2, process, 60.0, print)


def test_in_kubernetes_names_of_hosts_are_waited_for(monkeypatch):
    monkeypatch.setitem(os.environ, "KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(InputError, match="process 0 did not answer"):
        meet("no.such.host.invalid:99", 2, 1, 0.3, print)


def test_another_program_has_the_port(coordinator):
    host, port = rendezvous.split(coordinator)
    with socket.create_server((host, port)) as server:

        def greet():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(InputError, match="another program than process 0"):
            meet(coordinator, 2, 1, 9.0, print)
        thread.join()
        with pytest.raises(InputError, match=rf"cannot listen at port {port} .*in use"):
            meet(coordinator, 2, 0, 9.0, print)


def test_whatever_strangers_say_the_processes_meet(coordinator, monkeypatch):
    monkeypatch.setattr(rendezvous, "ATTEMPT", 0.5)
    usual = rendezvous._greeting(2, 1)
    said = [
        b"[" * 100_000 + b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
        b"no end of a line",
        *(
            json.dumps(usual | changes).encode() + b"\n"
            for changes in (
                {"process": float("inf")},
                {"process": -1},
                {"process": 99},
                {"process": True},
                {"processes": "2" * 1000},
                {"host": "h" * 4000},
                {"jaxfl": None},
            )
        ),
    ]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meet, coordinator, 2, 0, 9.0, lambda line: None)
        connections = []
        for greeting in said:
            while True:
                try:
                    connections.append(socket.create_connection(rendezvous.split(coordinator)))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            with contextlib.suppress(OSError):  # process 0 may have hung up
                connections[-1].sendall(greeting)
        # One says a byte now and then, and never ends.
        slow = socket.create_connection(rendezvous.split(coordinator))
        slow.sendall(b"{")
        began = time.monotonic()
        here = meet(coordinator, 2, 1, 9.0, lambda line: None)
        assert here == first.result() == [socket.gethostname()] * 2
        assert time.monotonic() - began < 5
        for connection in (*connections, slow):
            connection.close()


@pytest.mark.parametrize(
    ("greeting", "message"),
    [
        ({"processes": 3}, "process 1 has --processes 3, process 0 has 2"),
        ({"jaxfl": "0.0.1"}, "process 1 has jaxfl 0.0.1, process 0 has "),
        ({"process": 0}, "process 0 was started twice, on "),
    ],
)
def test_processes_that_were_started_differently(coordinator, greeting, message, monkeypatch):
    usual = rendezvous._greeting

    def other(processes, process):
        return usual(processes, process) | (greeting if process else {})

    monkeypatch.setattr(rendezvous, "_greeting", other)
    answers, _ = together(coordinator, processes=2, numbers=[0, 1], timeout=9.0)
    assert answers[0] == answers[1]
    assert answers[0].startswith(message)
