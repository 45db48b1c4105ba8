"""The audit log: who did what, at the level that a policy file chooses."""
