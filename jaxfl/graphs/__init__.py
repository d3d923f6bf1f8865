"""Graphs that are given or drawn, who is whose neighbour, and what a graph is judged by.

May import `core`. A new topology of servers (`topology`), network of clients (`networks`, made of
`pairs`), condition of its edges (`links`), hierarchy or measure of mixing weights goes here; a
graph that is computed from models in each round is a kernel.
"""
