"""What the server says about its API: discovery, OpenAPI and tables."""
