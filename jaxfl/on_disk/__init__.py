"""More clients than fit into memory: their data and states lie on disk, a round reads its cohort.

Results have the same bits as those of the functions without "stored" in their names.
"""

from pathlib import Path

from jaxfl.on_disk.clients import ClientStates
from jaxfl.on_disk.directory import open_federation, write_federation
from jaxfl.on_disk.evaluate import make_stored_evaluate
from jaxfl.on_disk.federation import StoredFederation
from jaxfl.on_disk.initial import initial_state
from jaxfl.on_disk.rounds import make_stored_rounds
from jaxfl.types import Algorithm, PRNGKey, State

__all__ = [
    "ClientStates",
    "StoredFederation",
    "make_stored_evaluate",
    "make_stored_rounds",
    "open_clients",
    "open_federation",
    "write_federation",
]


def open_clients(
    directory: Path | str,
    algorithm: Algorithm,
    key: PRNGKey,
    federation: StoredFederation,
    *,
    keep: int = 2,
    resume: bool = False,
) -> tuple[ClientStates, State]:
    """The file of the clients' states in a directory, and the state before the first round.

    A client gets a row in the file when it first takes part. The state is small: its `clients` say
    where each client's row is [C, 2]. Before a checkpoint of it, call `protect`:

        clients.protect(state)
        jaxfl.checkpoint.save(path, round, state)

    After the process has ended, go on with `resume=True` and `checkpoint.restore(path, like)`,
    where `like` is the state that this function returns.

    Args:
      directory: of the file.
      algorithm: has `init`.
      key: for it.
      federation: the data of all clients.
      keep: how many protected states stay readable, the newest ones.
      resume: go on with the file that is there; otherwise a new one takes its place.

    Raises:
      InputError: there is no such file, it is of another method or model, or the first states of
        the method's clients depend on all clients at once and do not fit into memory.
    """
    clients = ClientStates(
        directory, initial_state(algorithm, key, federation), keep=keep, resume=resume
    )
    return clients, clients.start()
