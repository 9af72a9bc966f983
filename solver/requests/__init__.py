"""What a user asks the solver for, in words, and its answer in words."""
