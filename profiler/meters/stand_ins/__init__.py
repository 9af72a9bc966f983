"""Stand-ins for instruments, for use without hardware. They implement the protocols and measure
nothing."""
