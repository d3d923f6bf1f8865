"""The server's mathematics: functions from arrays to arrays, held against independent references.

May import `core`, and of other libraries jax, optax and jaxopt. A new similarity,
aggregate or solver goes here, one subject a file, with its claims in `tests/kernels`; the decorator
`checked` refuses arrays and models of another form than its hints say.
"""

from jaxfl.kernels import alignment as alignment
from jaxfl.kernels import amp as amp
from jaxfl.kernels import attention as attention
from jaxfl.kernels import bipartition as bipartition
from jaxfl.kernels import cluster as cluster
from jaxfl.kernels import coalitions as coalitions
from jaxfl.kernels import combination as combination
from jaxfl.kernels import consensus as consensus
from jaxfl.kernels import contrastive as contrastive
from jaxfl.kernels import coupling as coupling
from jaxfl.kernels import filters as filters
from jaxfl.kernels import fomo as fomo
from jaxfl.kernels import gaussian as gaussian
from jaxfl.kernels import gossip as gossip
from jaxfl.kernels import hypernet as hypernet
from jaxfl.kernels import learned as learned
from jaxfl.kernels import merit as merit
from jaxfl.kernels import mixing as mixing
from jaxfl.kernels import neighbours as neighbours
from jaxfl.kernels import propagate as propagate
from jaxfl.kernels import reversible as reversible
from jaxfl.kernels import robust as robust
from jaxfl.kernels import server as server
from jaxfl.kernels import similarity as similarity
from jaxfl.kernels import simplex as simplex
from jaxfl.kernels import sketch as sketch
from jaxfl.kernels import sparse as sparse
from jaxfl.kernels import transport as transport
