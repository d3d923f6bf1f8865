"""How runs grow in clients, cohort, parameters, rounds and seeds, and a client step in clients."""
