"""Layer 1, pure: kinds, versions, defaulting, conversion, validation, gates, admission."""
