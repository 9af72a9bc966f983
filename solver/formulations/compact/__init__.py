"""The *compact* formulation: recomputation and paging as a mixed-integer program.

The schedule is cut into stages as in Checkmate (Jain et al., MLSys 2020): stage ``t`` ends with the
first execution of op ``t``; before it, earlier ops may be recomputed, each at most once and in the
graph's order. Paging follows POET (Patil et al., ICML 2022). Binary columns:

- ``recompute[t, k]``: op ``k`` is computed again in stage ``t > k``;
- ``retain[t, i]``: tensor ``i`` is in RAM when stage ``t`` begins, having been there before.
  Stages between which ``i`` can be neither used nor made share one column;
- ``page_in[t, i]``: exists only where an op that reads ``i`` can run in stage ``t``, and is used
  only if one does: paging in for later is dominated by doing it later;
- ``page_out[i]``: one per tensor, right after it was first made (for a tensor that exists from the
  start, before the first op): nothing is gained by doing it later.

What is free and when follows from these, so that memory needs no columns of its own: at the last
op of a stage, RAM holds what the op reads and writes and what is retained into the next stage, one
row per stage. Memory during a recomputation inside a stage has many more rows, which are added only
where a solution was found over budget (:mod:`solver.formulations.compact.cuts`). With all of them
the program is exact.
"""
