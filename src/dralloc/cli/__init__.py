"""Layer 6: the command line. No logic: read what was asked for, call, print."""
