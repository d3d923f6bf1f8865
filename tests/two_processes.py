"""One round of every n-th algorithm, in one of two processes.

`python two_processes.py COORDINATOR PROCESS OUT.npz N`
"""

import sys

import jax
import numpy as np
from toys import SIZES, made, opposite_groups, quick_key, run, shallow, unpadded

from jaxfl.algorithms import ALGORITHMS
from jaxfl.simulation import mesh, processes

jax.config.update("jax_disable_most_optimizations", True)  # as conftest.py
processes.prepare_host(1)
processes.join_processes(sys.argv[1], 2, int(sys.argv[2]))
leaves = {}
with jax.set_mesh(mesh.make_mesh()):
    padded = opposite_groups(sizes=SIZES)
    # Arrays with and without padding, in turns.
    forms = (mesh.place(padded), mesh.place(unpadded(padded)))
    for turn, name in enumerate(list(ALGORITHMS)[:: int(sys.argv[4])]):
        data = forms[turn % 2]
        algorithm = made(ALGORITHMS[name], shallow)
        start = jax.jit(algorithm.init)(jax.random.fold_in(quick_key(0), 10**6), data.train)
        state, info, _ = run(algorithm, data, 1, state=mesh.place(start))
        for number, leaf in enumerate(jax.tree.leaves((mesh.fetch(state), info))):
            leaves[f"{name}/{number:03}"] = leaf
if processes.is_main_process():
    np.savez(sys.argv[3], **leaves)
