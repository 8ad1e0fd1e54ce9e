"""What runs say: costs, gaps, working sets, modes, regimes."""
