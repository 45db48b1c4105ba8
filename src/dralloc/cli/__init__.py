"""Layer 7: the command line. No logic: read what was asked for, call, print."""
