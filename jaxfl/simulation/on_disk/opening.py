"""Opens the states of clients on disk for an algorithm."""

from pathlib import Path

from jaxfl.core.types import Algorithm, PRNGKey, State
from jaxfl.simulation.on_disk.clients import ClientStates
from jaxfl.simulation.on_disk.federation import StoredFederation
from jaxfl.simulation.on_disk.initial import initial_state


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
        jaxfl.simulation.checkpoint.save(path, round, state)

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

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> stored = jaxfl.on_disk.write_federation("my-data", federation)
      >>> algorithm = jaxfl.algorithms.local(jaxfl.regression(jaxfl.models.linear(), np.zeros(3)))
      >>> clients, state = open_clients("my-states", algorithm, jax.random.key(0), stored)
      >>> state.clients.shape, state.clients[0].tolist()
      ((150, 2), [-1, -1])
    """
    clients = ClientStates(
        directory, initial_state(algorithm, key, federation), keep=keep, resume=resume
    )
    return clients, clients.start()
