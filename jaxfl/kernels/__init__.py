"""The server's mathematics: functions from arrays to arrays, held against independent references.

May import `core`, and of other libraries jax, optax and jaxopt. A new similarity,
aggregate or solver goes here, one subject a file, with its claims in `tests/kernels`.
"""
