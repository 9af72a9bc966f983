"""The retention formulation: Moccasin's retention intervals with OR-tools CP-SAT."""
