"""Messages of the gRPC interfaces, generated from the files in `proto/`."""
