"""Exit codes of the command line."""

DONE = 0
INTERNAL_ERROR = 1
USAGE = 2
BOARD_UNREACHABLE = 3
MEASUREMENT_INVALID = 4
INFEASIBLE = 5
NO_SOLUTION = 6
# By the convention of shells: ended by SIGINT.
INTERRUPTED = 130
