"""How well a general profile predicts networks that were not measured with it."""
