"""How a whole run grows: in clients, cohort, parameters, rounds and seeds."""
