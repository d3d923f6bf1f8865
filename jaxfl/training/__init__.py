"""The client's side: what a task is, and how a cohort trains on its own data.

May import `core` and `kernels`. A new objective, optimiser or adapter of a model library goes here;
what happens to a model on its way to the server is an uplink, which `upload` applies.
"""
