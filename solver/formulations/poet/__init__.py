"""The program of POET (Patil et al., ICML 2022), the reference that other formulations are held
against: small graphs only.

The schedule is cut into stages as in Checkmate (Jain et al., MLSys 2020): stage ``t`` ends with the
first execution of op ``t``; before it, earlier ops may be recomputed, each at most once and in the
graph's order. Columns are those of the paper, by stage ``t`` and by op ``k`` or tensor ``i``:

- ``R[t, k]``: op ``k`` is computed in stage ``t``; lower triangular, 1 on the diagonal;
- ``S_ram[t, i]``, ``S_sd[t, i]``: the tensor is in RAM, has a copy in storage, when ``t`` begins;
- ``M_in[t, i]``, ``M_out[t, i]``: it is paged in, paged out, in stage ``t``;
- ``U[t, k]``: the memory that is taken when op ``k`` was reached in stage ``t``, by recurrence;
- ``Free_E[t, i, k]``: the tensor goes right after op ``k``, which was the last to need it.

What the semantics of ``schedule/2`` ask for beyond the paper:

- Nodes of the paper are both ops and tensors. Here an op may make several tensors, each of which is
  kept, paged and freed by itself; one that was made again but is not wanted goes at once.
- Workspace counts while its op runs, and what an op writes over in place counts once and is gone
  then. What is there from the start may live in storage; what must persist in RAM is read by an op
  that ends the step, in a stage of its own; what must persist in storage is paged out.
- An action moves a whole tensor between two ops. In the paper transfers go on beside a stage: what
  is paged in in a stage takes RAM and is of use from the next one on, and what is made in a stage
  is paged out in the next one at the earliest. Here it is of use, and takes RAM, in the same stage,
  from the op ``k`` on for which it is paged in: ``In_E[t, i, k]``, continuous columns that sum up
  to ``M_in[t, i]``, are 1 for it as soon as the columns of the paper are whole. And what was made
  for the first time can be paged out at once. This allows more than the paper does, and with it the
  optimum is that of :mod:`solver.formulations.compact`, under the same restrictions.
- Transfers count time against the deadline unless the budget says that they do not (the paper's),
  or run beside ops where the storage has DMA (:mod:`solver.formulations.deadline`).

A tensor that is in RAM from two sources in a stage counts twice: having it from one is as good.
"""
