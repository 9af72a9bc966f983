"""Mixed-integer programs as data, and the engines that solve them, each in a process of its own."""
