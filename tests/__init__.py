"""Tests of dralloc. A package, so that `tests.support` is found wherever they run."""
