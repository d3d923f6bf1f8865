"""What the server keeps between rounds."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from jaxfl.core.messages import Down, ServerState
from jaxfl.serve.server import Progress, advance


def test_a_round_in_which_nobody_reports_keeps_the_replies():
    replies = np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])
    progress = Progress(np.asarray(3), np.asarray(1), (), (), np.array([2, 0]), replies)
    reply = Down(common=np.array([7.0]), each=np.array([[8.0]]))
    after = advance(progress, np.array([1]), ServerState(), np.array([False]), reply)
    assert after.counted.tolist() == [2, 0]
    assert after.replies is replies
