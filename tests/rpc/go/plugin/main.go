// A driver that speaks with nodes through grpc-go: it registers, and prepares every claim with one device.
//
// It tells what happens on its output, a line each.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"

	_ "dralloc/codec"
	dra "dralloc/drav1"
	"dralloc/registration"
)

var (
	name     = flag.String("name", "gpu.example.com", "the name of the driver")
	endpoint = flag.String("endpoint", "", "the socket for calls")
	registry = flag.String("registry", "", "the socket for registration")
	share    = flag.String("share", "", "the share ID of every device; none if empty")
)

type plugin struct {
	dra.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
}

func (plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              "DRAPlugin",
		Name:              *name,
		Endpoint:          *endpoint,
		SupportedVersions: []string{"v1.DRAPlugin"},
	}, nil
}

func (plugin) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	fmt.Println("registered", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (plugin) NodePrepareResources(
	_ context.Context, request *dra.NodePrepareResourcesRequest,
) (*dra.NodePrepareResourcesResponse, error) {
	claims := map[string]*dra.NodePrepareResourceResponse{}
	for _, claim := range request.Claims {
		fmt.Println("prepare", claim.Namespace, claim.Name, claim.Uid)
		device := &dra.Device{
			PoolName:     "pool-a",
			DeviceName:   "gpu-0",
			CdiDeviceIds: []string{"example.com/gpu=" + claim.Name},
		}
		if *share != "" {
			device.ShareId = share
		}
		claims[claim.Uid] = &dra.NodePrepareResourceResponse{Devices: []*dra.Device{device}}
	}
	return &dra.NodePrepareResourcesResponse{Claims: claims}, nil
}

func (plugin) NodeUnprepareResources(
	_ context.Context, request *dra.NodeUnprepareResourcesRequest,
) (*dra.NodeUnprepareResourcesResponse, error) {
	claims := map[string]*dra.NodeUnprepareResourceResponse{}
	for _, claim := range request.Claims {
		fmt.Println("unprepare", claim.Namespace, claim.Name, claim.Uid)
		claims[claim.Uid] = &dra.NodeUnprepareResourceResponse{}
	}
	return &dra.NodeUnprepareResourcesResponse{Claims: claims}, nil
}

func serve(socket string, register func(*grpc.Server)) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	log.Fatal(server.Serve(listener))
}

func main() {
	flag.Parse()
	go serve(*endpoint, func(server *grpc.Server) { dra.RegisterDRAPluginServer(server, plugin{}) })
	serve(*registry, func(server *grpc.Server) { registration.RegisterRegistrationServer(server, plugin{}) })
}
