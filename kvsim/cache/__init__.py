"""The cache: its meaning, its engine, policies, bounds, curves and grids of runs."""
