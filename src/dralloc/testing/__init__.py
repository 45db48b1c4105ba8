"""Layer 6: builders, fakes and harnesses for tests, ours and those of driver authors."""
