"""What a block measures, written as the harness's plan, and its records read back."""
