"""That nothing breaks the index: kills, signals, full disks, lost databases, writers at once."""
