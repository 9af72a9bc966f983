"""Simulated annealing over the order of a step and over what is made again, by a C library.

Kirkpatrick et al., Science 1983. A schedule is a sequence of events: computing an op, or paging a
tensor in. What stays in RAM between them follows: a tensor is live from the event that makes it to
the last one that uses it before it is made again. The moves put an event in where a tensor's live
range is split by it, take one out, move one, or compute again what was paged in and the other way
round; each may carry a chain of others with it. Being over the RAM budget or late costs, by
weights that follow how often the search is.
"""

from solver.annealing.annealer import Annealer, anneal

__all__ = ["Annealer", "anneal"]
