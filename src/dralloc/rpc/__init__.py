"""Messages of the gRPC interfaces that we speak, generated from the files in `proto/`."""
