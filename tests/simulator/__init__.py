"""The soak test: every component in one process, one virtual clock, one seed; faults, and checkers that look on."""
