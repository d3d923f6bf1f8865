"""A method of messages as a strategy of Flower."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from logging import INFO
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log as flower_log

from jaxfl.core import tree
from jaxfl.core.errors import warn
from jaxfl.core.messages import Down, ServerState
from jaxfl.core.types import Algorithm, Participation, PRNGKey, Task
from jaxfl.serve.client_half import served_wire
from jaxfl.serve.forms import form_of
from jaxfl.serve.halves import channel_of
from jaxfl.serve.named_arrays import row
from jaxfl.serve.nodes import Roster, meet
from jaxfl.serve.orders import message_to
from jaxfl.serve.pack import floats_in, pack_key
from jaxfl.serve.plain import Elsewhere, plain_wire
from jaxfl.serve.replies import arrivals, score_log
from jaxfl.serve.round_log import RoundLog, ScoreLog, write_log
from jaxfl.serve.server import (
    advance,
    known_of,
    restore_progress,
    save_progress,
    server_half,
    settings_of,
)
from jaxfl.serve.state import locked
from jaxfl.simulation.rounds import draw_cohort
from jaxfl.training.channel import faithful

# Clients that train without jaxfl may have data of any form.
NO_EXAMPLE = (np.zeros((), np.float32), np.zeros((), np.int32))
# What the server keeps, in its directory.
FILE = "server.npz"


class FlowerStrategy(Strategy):
    """The server's half of a method, for clients of `jaxfl.serve.client.client_app`.

    Its clients may also train without jaxfl: see `jaxfl.serve.plain.plain_task`.

    Each client gets its own messages. Round t is that of `make_rounds` with the same key: the same
    cohort, the same batches. A client of the cohort that is not connected, does not answer in time,
    or answers with something else than was asked has not reported; it keeps a row of the cohort, so
    that all rounds are one compiled program.

    What a client of the last step of a round has to know (whether its upload counted, and the
    reply to it) goes to it with its next message, in training or in evaluation.

    Attributes: `progress` is all that the server keeps; `rounds` and `scores` are the logs of the
    rounds and evaluations of this process.

    Example:
      >>> strategy = FlowerStrategy(
      ...     jaxfl.algorithms.fedavg(task),
      ...     task,
      ...     jaxfl.participation.full(4),
      ...     clients=4,
      ...     example=(np.zeros(8, np.float32), np.int32(0)),
      ...     key=jax.random.key(0),
      ...     init_key=jax.random.key(1),
      ... )
      >>> int(strategy.progress.rounds)
      0
    """

    def __init__(
        self,
        algorithm: Algorithm,
        task: Task,
        participation: Participation,
        *,
        clients: int,
        example: tuple = NO_EXAMPLE,
        key: PRNGKey,
        init_key: PRNGKey,
        directory: Path | None = None,
        evaluate_every: int = 1,
        min_available_nodes: int = 1,
        question_timeout: float = 60.0,
    ) -> None:
        """See the class.

        Args:
          algorithm: the method, made of the task.
          task: the model and its training; the server applies its half of the uplink, the defence.
          participation: (key, round) -> ids [M], see `make_rounds`.
          clients: C, of whom not all need be connected.
          example: (x [*feature], y [*target]), of the types of the clients' data; its values are
            not read. With a `plain_task` it is not needed.
          key: of the rounds, as `make_rounds` takes it.
          init_key: as `Algorithm.init` takes it.
          directory: where the server saves what it keeps after each round (`server.npz`) and the
            logs (`rounds`, `scores`). If there is a saved server, it goes on. None: nothing is
            saved.
          evaluate_every: after how many rounds all connected clients score the models that they
            deploy; 0: never.
          min_available_nodes: for how many connected nodes the first round of a process waits; the
            next ones wait for one.
          question_timeout: how long a new node has to say which client it is, in seconds.

        A defence that measures updates from starts which clients tell is warned of: a malicious
        client evades it.

        Raises:
          InputError: the method is not written as messages, or reads the data of all clients before
            its first round; the task's upload has no halves; or the saved server is of another
            method, model, number of clients, size of a cohort or key.
        """
        wire, channel = served_wire(algorithm), channel_of(task)
        rows = jax.eval_shape(participation, key, jnp.int32(0)).size
        if isinstance(task.trainer, Elsewhere):
            wire = plain_wire(wire, task.trainer)
        self.form = form_of(wire, channel, example, clients, rows)
        told = any("client" in exchange.starts for exchange in self.form.exchanges)
        if told and channel.defence is not faithful:
            warn(
                "a client tells from where its update starts, so the defence sees what a malicious "
                "client wants it to see: choose a method whose server knows the start (fedavg, "
                "ditto), or a method that is itself robust (median, krum)"
            )
        # Without jaxfl a client keeps nothing itself: a node may be any client if the server keeps
        # nothing for it either.
        plain = isinstance(task.trainer, Elsewhere)
        self._anonymous = plain and not jax.tree.leaves(self.form.state.record[:2])
        self.half = server_half(wire, channel, self.form, example)
        self.participation, self.key, self.init_key = participation, key, init_key
        self.directory, self.evaluate_every = directory, evaluate_every
        self.min_available_nodes, self.question_timeout = min_available_nodes, question_timeout
        self._settings = settings_of(self.form, key, init_key)
        self.progress = self.half.start(init_key)
        self._restore()
        self.rounds: list[RoundLog] = []
        self.scores: list[ScoreLog] = []
        self._roster = Roster()
        # The node of each client that has its last reply, and the last round whose reply it has.
        self._delivered: dict[int, tuple[int, int]] = {}
        self._timeout = 3600.0
        self._open: OpenRound

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Runs the rounds that are still to do.

        Args:
          grid: of the ServerApp.
          initial_arrays: not used; the first model is that of `init_key`.
          num_rounds: of the whole run, with those that a saved server has done.
          timeout: how long to wait for the answers in each exchange, in seconds.
          train_config: for clients of your own; `evaluate_config` likewise.
          evaluate_config: see `train_config`.
          evaluate_fn: see Flower; there is no common model, so it is given no arrays.

        Raises:
          InputError: another server writes into the directory.
        """
        self._timeout = timeout
        with nullcontext() if self.directory is None else locked(self.directory):
            # Another server may have gone on since this one was made.
            self._restore()
            left = max(num_rounds - int(self.progress.rounds), 0)
            return super().start(
                grid, ArrayRecord(), left, timeout, train_config, evaluate_config, evaluate_fn
            )

    def _restore(self) -> None:
        """Goes on from the saved server, if there is one."""
        if self.directory is not None and (self.directory / FILE).exists():
            self.progress = restore_progress(self.directory / FILE, self.progress, self._settings)

    def summary(self) -> None:
        """Logs what the strategy serves, as Flower's strategies do."""
        text = f"{self.form.clients} clients, cohorts of {self.form.rows}, rounds done:"
        flower_log(INFO, "\t└──> %s %s", text, self.progress.rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the first exchange of a round, to the clients of its cohort."""
        self._meet(grid)
        key, ids = self._draw(int(self.progress.rounds))
        known = known_of(self.progress, ids)
        self._open = OpenRound(key, ids, known, self.half.download(known), config, grid)
        messages = self._messages(self._open.down, 0, np.ones(ids.size, bool))
        self._open = self._open._replace(floats=self._floats(messages))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The server's steps of a round, and the messages of further exchanges between them."""
        key, ids, known, down, _, grid, floats = self._open
        number = int(self.progress.rounds)
        clients = {node: client for client, node in self._roster.node_of.items()}
        reported = np.ones(ids.size, bool)
        none = np.zeros(ids.size, int)
        log = RoundLog(number, ids, reported, np.full(ids.size, np.nan), None, {}, none, none)
        for place, form in enumerate(self.form.exchanges):
            if place > 0:
                messages = self._messages(down, place, reported)
                floats = self._floats(messages)
                replies = grid.send_and_receive(messages, timeout=self._timeout)
            replies = list(replies)
            found = arrivals(replies, ids, clients, form)
            self._forget(replies)
            starts = self.half.starts[place](key, down, jnp.asarray(ids), jnp.int32(number))
            ups = tuple(
                up if who == "client" else up._replace(before=start)
                for up, start, who in zip(found.ups, starts, form.starts, strict=True)
            )
            outcome, good = self.half.steps[place](
                key, known, ups, starts, ids, found.sizes, found.arrived
            )
            for client in ids[found.arrived & ~np.asarray(good)]:
                warn(f"the upload of client {client} does not count: it is not finite")
            self._note_delivery(ids, found.arrived)
            known, down = outcome.state, outcome.reply._replace(counted=good)
            reported = reported & np.asarray(good)
            sent = [(up.after, up.plain, up.before) for up in form.sent]
            log = log.add(outcome, found.loss, floats, tree.size(sent) * found.arrived)
        known, reported = self.half.settle(self._open.known, known._replace(memo=None), reported)
        reported = np.asarray(reported)
        self._close(log._replace(reported=reported), known, down)
        told: dict = {"clients": int(reported.sum())}
        if np.isfinite(log.loss).any():
            told["loss"] = float(np.nanmean(log.loss))
        return None, MetricRecord(told)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of an evaluation, to all clients that are connected."""
        if not self.evaluate_every or int(self.progress.rounds) % self.evaluate_every:
            return []
        self._meet(grid)
        ids = np.arange(self.form.clients)
        down = Down()
        if self.form.release is not None:
            down = self.half.release(known_of(self.progress, ids))
        key, _ = self._draw(int(self.progress.rounds))
        self._open = OpenRound(key, ids, ServerState(), down, config, grid)
        return self._messages(down, -1, np.ones(ids.size, bool))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The mean scores of the clients that answered, which count equally."""
        clients = {node: client for client, node in self._roster.node_of.items()}
        replies = list(replies)
        log = score_log(int(self.progress.rounds), replies, clients)
        self._forget(replies)
        if not log.ids.size:
            return None
        everybody = np.arange(self.form.clients)
        self._note_delivery(everybody, np.isin(everybody, log.ids))
        self.scores.append(log)
        if self.directory is not None:
            write_log(self.directory, log)
        means = {name: x[np.isfinite(x)] for name, x in (("val", log.val), ("test", log.test))}
        means = {name: float(x.mean()) for name, x in means.items() if x.size}
        return MetricRecord({"clients": log.ids.size, **means})

    def _draw(self, number: int) -> tuple[PRNGKey, np.ndarray]:
        """The key of a round and the ids of its cohort [M]."""
        key, ids = draw_cohort(self.participation, self.key, jnp.int32(number))
        return key, np.asarray(ids)

    def _meet(self, grid: Grid) -> None:
        """Finds out on which node each client is."""
        self._roster = meet(
            grid,
            self._roster,
            self.form.clients,
            least=1 if self._roster.asked else self.min_available_nodes,
            timeout=self.question_timeout,
            anonymous=self._anonymous,
        )

    def _forget(self, replies: list[Message]) -> None:
        """Lets the nodes that could not answer be asked again which client each of them is."""
        failed = {reply.metadata.src_node_id for reply in replies if reply.has_error()}
        node_of, asked, questions = self._roster
        node_of = {client: node for client, node in node_of.items() if node not in failed}
        self._roster = Roster(node_of, asked - failed, questions)

    def _messages(self, down: Down, exchange: int, who: np.ndarray) -> list[Message]:
        """A message to each client of the open round that takes part [M] and is connected."""
        key, ids, _, _, config, *_ = self._open
        order = {
            "clients": self.form.clients,
            "rows": self.form.rows,
            "init-key": pack_key(self.init_key),
            "key": pack_key(key),
        }
        there = [place for place in np.flatnonzero(who) if int(ids[place]) in self._roster.node_of]
        return [
            message_to(
                int(ids[place]),
                self._roster.node_of[int(ids[place])],
                Down(down.common, row(down.each, int(place))),
                exchange,
                self.progress,
                order | self._last_key(int(ids[place])),
                config,
                self._reply_at(int(ids[place])),
            )
            for place in there
        ]

    def _floats(self, messages: list[Message]) -> np.ndarray:
        """How many numbers the arrays of messages to the cohort of the open round have [M]."""
        node_of, ids = self._roster.node_of, self._open.ids.tolist()
        of_node = {one.metadata.dst_node_id: floats_in(one.content) for one in messages}
        return np.array([of_node.get(node_of.get(client, -1), 0) for client in ids])

    def _last_key(self, client: int) -> dict[str, list[int]]:
        """The key of the last round that counted for a client, which takes its reply with it."""
        counted = int(self.progress.counted[client])
        return {} if counted < 0 else {"counted-key": pack_key(self._draw(counted)[0])}

    def _note_delivery(self, ids: np.ndarray, answered: np.ndarray) -> None:
        """Clients that have answered have the replies to their last uploads.

        The others get them again: they may have gone back to what they knew before.
        """
        for client in ids[answered].tolist():
            node = self._roster.node_of[client]
            self._delivered[client] = node, int(self.progress.counted[client])
        for client in ids[~answered].tolist():
            self._delivered.pop(client, None)

    def _reply_at(self, client: int) -> int:
        """The last round whose reply the node of a client has; -1: none."""
        node, number = self._delivered.get(client, (-1, -1))
        return number if node == self._roster.node_of[client] else -1

    def _close(self, log: RoundLog, known: ServerState, reply: Down) -> None:
        """Keeps what a round has made, and saves it before any client hears of it."""
        self.progress = advance(self.progress, log.ids, known, log.reported, reply)
        self.rounds.append(log)
        if self.directory is not None:
            write_log(self.directory, log)
            save_progress(self.directory / FILE, self.progress, self._settings)


class OpenRound(NamedTuple):
    """The round, or the evaluation, whose messages are under way."""

    key: PRNGKey
    ids: np.ndarray  # [M]
    # with the records of the cohort [M, ...]
    known: ServerState
    down: Down
    config: ConfigRecord
    grid: Grid
    # [M] how many numbers the messages of the first exchange have
    floats: np.ndarray = np.zeros(0, int)
