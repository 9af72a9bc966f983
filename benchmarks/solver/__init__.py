"""How good the solver is, beside what is published, on one set of graphs."""
