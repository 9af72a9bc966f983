"""The program of POET (Patil et al., ICML 2022), the reference for other formulations.

It is practical for small graphs only.

The schedule is cut into stages as in Checkmate (Jain et al., MLSys 2020): stage ``t`` ends with the
first execution of op ``t``; before it, earlier ops may be recomputed, each at most once and in the
graph's order. Columns are those of the paper, by stage ``t`` and by op ``k`` or tensor ``i``:

- ``R[t, k]``: op ``k`` is computed in stage ``t``; lower triangular, 1 on the diagonal;
- ``S_ram[t, i]``, ``S_sd[t, i]``: the tensor is in RAM, has a copy in storage, when ``t`` begins;
- ``M_in[t, i]``, ``M_out[t, i]``: it is paged in, paged out, in stage ``t``;
- ``U[t, k]``: memory in use at op ``k`` in stage ``t``, by recurrence;
- ``Free_E[t, i, k]``: the tensor is freed right after op ``k``, the last op that needs it.

Differences from the paper, which the semantics of ``schedule/2`` require:

- A node of the paper is both an op and a tensor. Here an op may write several tensors, each of
  which is kept, paged and freed separately; one that is recomputed without being needed is freed at
  once.
- Workspace counts while its op runs. A tensor written in place and the tensor that it replaces
  count once, and the latter is gone after the op. Tensors that exist when the step begins may have
  their home in storage; those that must persist in RAM are read by an op that ends the step, in a
  stage of its own; those that must persist in storage are paged out.
- An action moves a whole tensor between two ops. In the paper transfers run beside a stage: a
  tensor paged in during a stage takes RAM and can be read from the next stage on, and a tensor
  written in a stage is paged out in the next one at the earliest. Here it takes RAM and can be read
  in the same stage, from the op ``k`` on for which it is paged in: ``In_E[t, i, k]`` are continuous
  columns with the sum ``M_in[t, i]``, and are integral if the columns of the paper are. A tensor
  can be paged out right after it is first written. This allows more schedules than the paper, and
  the optimum is that of :mod:`solver.formulations.compact` under the same restrictions.
- Transfers count against the deadline, unless the budget excludes their time (as in the paper) or
  they run beside ops because the storage has DMA (:mod:`solver.formulations.deadline`).

A tensor that is in RAM from two sources in a stage counts twice; one source is as good.
"""
