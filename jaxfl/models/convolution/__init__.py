"""Convolutions that are fast in a loop over clients, on CPU and on GPU.

May import `core`. A new way to compute a convolution goes here; a new model is a file of `models`.
"""
