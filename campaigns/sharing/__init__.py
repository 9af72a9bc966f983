"""Archives of campaigns, which another lab unpacks to repeat them or to compare with them."""
