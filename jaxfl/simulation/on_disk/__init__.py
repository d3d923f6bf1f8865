"""More clients than fit into memory: their data and states lie on disk, a round reads its cohort.

Results are those of the functions without "stored" in their names, up to the last digit of
programs that are compiled otherwise.
"""

from jaxfl.simulation.on_disk.clients import ClientStates, open_clients
from jaxfl.simulation.on_disk.directory import open_federation, write_federation
from jaxfl.simulation.on_disk.evaluate import make_stored_evaluate
from jaxfl.simulation.on_disk.federation import StoredFederation
from jaxfl.simulation.on_disk.rounds import make_stored_rounds

__all__ = [
    "ClientStates",
    "StoredFederation",
    "make_stored_evaluate",
    "make_stored_rounds",
    "open_clients",
    "open_federation",
    "write_federation",
]
