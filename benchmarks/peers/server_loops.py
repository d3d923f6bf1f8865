"""pFedGraph's server step with loops: `python -m benchmarks.peers.server_loops 10 50`.

As in reference scripts: a NumPy cosine for each pair of models, a quadratic program for each row, a
sum over layers for each pair. Prints milliseconds for each number of models as JSON. Environment:
`pip install numpy cvxpy`; without cvxpy SciPy solves the programs, more slowly from 50 models on.
"""

import sys

import numpy as np

from benchmarks.peers.work import print_json, timed

try:
    import cvxpy

    SOLVER = f"cvxpy {cvxpy.__version__}"
except ImportError:
    import scipy
    from scipy.optimize import minimize

    cvxpy, SOLVER = None, f"scipy {scipy.__version__}"

LENET = {  # layers of a LeNet with 62,006 parameters
    **{
        "conv1.weight": (6, 3, 5, 5),
        "conv1.bias": (6,),
        "conv2.weight": (16, 6, 5, 5),
        "conv2.bias": (16,),
    },
    **{"fc1.weight": (120, 400), "fc1.bias": (120,), "fc2.weight": (84, 120), "fc2.bias": (84,)},
    **{"fc3.weight": (10, 84), "fc3.bias": (10,)},
}


def cosines(models: list[dict]) -> np.ndarray:
    """Cosine of each pair of models, dictionaries of arrays or of tensors [M, M]."""
    flat = [np.concatenate([np.ravel(layer) for layer in model.values()]) for model in models]
    s = np.ones((len(flat), len(flat)))
    for i, one in enumerate(flat):
        for j, other in enumerate(flat[:i]):
            s[i, j] = s[j, i] = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    return s


def row(s: np.ndarray, p: np.ndarray, alpha: float) -> np.ndarray:
    """The weights w on the simplex that minimise alpha |w - p|^2 - s w."""
    if cvxpy:
        w = cvxpy.Variable(len(p))
        square = cvxpy.quad_form(w, cvxpy.psd_wrap(alpha * np.eye(len(p))))
        aim = cvxpy.Minimize(square - (s + 2 * alpha * p) @ w)
        cvxpy.Problem(aim, [w >= 0, cvxpy.sum(w) == 1]).solve(solver=cvxpy.OSQP)
        return w.value
    return minimize(
        lambda w: alpha * (w - p) @ (w - p) - s @ w,
        p,
        jac=lambda w: 2 * alpha * (w - p) - s,
        bounds=[(0, None)] * len(p),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
    ).x


def mixed(weights: np.ndarray, models: list[dict]) -> list[dict]:
    """Each receiver's sum of the models, layer by layer."""
    found = []
    for receiver in weights:
        total = {name: 0 * layer for name, layer in models[0].items()}
        for weight, model in zip(receiver.tolist(), models, strict=True):
            for name, layer in model.items():
                total[name] += weight * layer
        found.append(total)
    return found


def server_step(models: list[dict], share: np.ndarray) -> list[dict]:
    """What each client receives."""
    s = cosines(models)
    weights = np.stack([row(s[i], share, 0.08 * len(models)) for i in range(len(models))])
    return mixed(weights, models)


def server_ms(clients: int) -> float:
    """Milliseconds of the step, best of three."""
    rng = np.random.default_rng(0)
    models = [
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in LENET.items()}
        for _ in range(clients)
    ]
    share = np.full(clients, 1 / clients)
    return 1e3 * min(timed(lambda: server_step(models, share), 3))


if __name__ == "__main__":
    print_json(ms=[server_ms(int(clients)) for clients in sys.argv[1:]], version=SOLVER)
