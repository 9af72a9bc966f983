"""An instrument's samples are placed on the board's clock."""
