"""HTTP: the application, its listener, and what a request and its response carry."""
