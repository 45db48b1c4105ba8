"""Who may do what: identities, requests for access and the authorizers that decide them. Pure: the API server asks."""
