"""Stand-ins for instruments that cannot be where there is no hardware. They speak the instruments'
protocols and measure nothing."""
