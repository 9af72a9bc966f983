"""Search by integer programming: rounds of an engine, each solution checked by the referee."""
