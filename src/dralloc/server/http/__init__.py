"""The HTTP side of the API server: listener, application, authentication, and requests and responses as values."""
