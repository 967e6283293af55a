"""Floor 2: what is learned from rows of data, and which rows may be on two sides of a split."""
