"""What may happen to a model on its way to the server: functions `(key, before, after, ids) -> received`."""

from jaxfl.uplink.attacks import ATTACKS, FLIPPED, attack, malicious_clients

__all__ = ["ATTACKS", "FLIPPED", "attack", "malicious_clients"]
