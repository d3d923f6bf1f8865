"""The words that every room speaks: types, pytrees of clients, errors, options, random streams.

May import nothing else of jaxfl. A new thing belongs here if three rooms need it and it knows
nothing of training, servers or runs; a function of one room stays in that room.
"""
