"""One module for each fault: pure functions from facts to findings."""
