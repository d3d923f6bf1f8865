"""Graphs that are given or drawn, who is whose neighbour, and what a graph is judged by.

May import `core`. A new topology, hierarchy or measure of mixing weights goes here; a graph that is
computed from models in each round is a kernel.
"""
