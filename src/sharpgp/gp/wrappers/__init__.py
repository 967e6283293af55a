"""GPs that change another one: a warp of its target, a mean from elsewhere."""
