"""What runs say: costs, gaps, working sets, modes, averages, worth in memory, regimes."""
