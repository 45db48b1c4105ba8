"""How the server describes its API: discovery, OpenAPI documents and tables."""
