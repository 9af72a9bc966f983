"""The *compact* formulation: recomputation and paging as a mixed-integer program.

The schedule is cut into stages as in Checkmate (Jain et al., MLSys 2020): stage ``t`` ends with the
first execution of op ``t``; before it, earlier ops may be recomputed, each at most once and in the
graph's order. Paging follows POET (Patil et al., ICML 2022). Binary columns:

- ``recompute[t, k]``: op ``k`` is recomputed in stage ``t > k``;
- ``retain[t, i]``: tensor ``i`` is in RAM at the end of stage ``t - 1`` and when stage ``t``
  begins. Stages between which ``i`` can be neither used nor written share one column;
- ``page_in[t, i]``: exists only if an op that reads ``i`` can run in stage ``t``, and is used only
  if one does run: paging in earlier than needed is dominated by paging in later;
- ``page_out[i]``: one per tensor, right after it is first written (for a tensor that exists when
  the step begins, before the first op): paging out later has no advantage.

When tensors are freed follows from these columns, so memory needs no columns of its own: at the
last op of a stage, RAM holds the tensors that the op reads and writes and those retained into the
next stage, which is one row per stage. Memory during a recomputation inside a stage has many more
rows. They are added as cuts only where a solution exceeds the budget
(:mod:`solver.formulations.compact.cuts`). With all of them the program is exact.
"""
