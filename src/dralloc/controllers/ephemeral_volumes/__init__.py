"""Creates the claims of ephemeral volumes."""
