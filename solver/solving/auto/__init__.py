"""The default strategy: annealing for schedules, and proofs of bounds beside it."""
