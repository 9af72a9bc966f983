"""Mixed-integer programs as data, and engines that solve them, each in a separate process."""
