"""The functions that expressions can call, one module for each library."""
