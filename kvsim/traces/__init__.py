"""Request traces: what they hold, how they are read, fetched, made and arranged in time."""
