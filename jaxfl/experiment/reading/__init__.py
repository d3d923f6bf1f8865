"""Finished runs: their scores, graphs and models, and what each client gains by them."""
