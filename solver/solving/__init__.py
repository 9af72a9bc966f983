"""Which methods are used, in which order, and the schedule that they come to."""
