"""Simulated annealing over schedules, by a C library (Kirkpatrick et al., Science 1983).

A schedule is a sequence of events: computing an op, or paging a tensor in. Residency follows from
the sequence: a tensor is live from the event that writes it to the last event that uses it before
it is recomputed or paged in again. The moves insert an event that splits a tensor's live range,
remove an event, shift an event, exchange recomputing and paging in, no longer page a tensor out, or
page out another one in its place; each may change a chain of other events. Exceeding the RAM budget
or the deadline is penalised with weights that adapt to the current penalty.
"""

from solver.annealing.annealer import Annealer, anneal

__all__ = ["Annealer", "anneal"]
