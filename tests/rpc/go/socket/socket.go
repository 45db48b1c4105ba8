// Package socket serves gRPC on Unix sockets, as drivers do.
package socket

import (
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
)

// Serve never returns. A socket that an earlier process has left is replaced.
func Serve(path string, register func(*grpc.Server)) {
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	log.Fatal(server.Serve(listener))
}
