// A driver that speaks with nodes through grpc-go: it registers, prepares every claim with one device, and says that it is unwell.
//
// It tells what happens on its output, a line each.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"google.golang.org/grpc"

	_ "dralloc/codec"
	health "dralloc/dra_health_v1"
	dra "dralloc/dra_v1"
	beta "dralloc/dra_v1beta1"
	registration "dralloc/plugin_registration"
	"dralloc/socket"
)

var (
	name     = flag.String("name", "gpu.example.com", "the name of the driver")
	endpoint = flag.String("endpoint", "", "the socket for calls")
	registry = flag.String("registry", "", "the socket for registration")
	share    = flag.String("share", "", "the share ID of every device; none if empty")
	onlyBeta = flag.Bool("beta", false, "offer nothing but v1beta1")
)

const pool, device = "pool-a", "gpu-0"

type plugin struct {
	dra.UnimplementedDRAPluginServer
	health.UnimplementedDRAResourceHealthServer
	registration.UnimplementedRegistrationServer
}

type betaPlugin struct {
	beta.UnimplementedDRAPluginServer
}

func (plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	versions := []string{"v1.DRAPlugin", "v1.DRAResourceHealth"}
	if *onlyBeta {
		versions = []string{"v1beta1.DRAPlugin"}
	}
	return &registration.PluginInfo{
		Type:              "DRAPlugin",
		Name:              *name,
		Endpoint:          *endpoint,
		SupportedVersions: versions,
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
		prepared := &dra.Device{PoolName: pool, DeviceName: device, CdiDeviceIds: []string{"example.com/gpu=" + claim.Name}}
		if *share != "" {
			prepared.ShareId = share
		}
		claims[claim.Uid] = &dra.NodePrepareResourceResponse{Devices: []*dra.Device{prepared}}
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

func (betaPlugin) NodePrepareResources(
	_ context.Context, request *beta.NodePrepareResourcesRequest,
) (*beta.NodePrepareResourcesResponse, error) {
	claims := map[string]*beta.NodePrepareResourceResponse{}
	for _, claim := range request.Claims {
		fmt.Println("prepare-beta", claim.Namespace, claim.Name, claim.Uid)
		prepared := &beta.Device{PoolName: pool, DeviceName: device}
		claims[claim.Uid] = &beta.NodePrepareResourceResponse{Devices: []*beta.Device{prepared}}
	}
	return &beta.NodePrepareResourcesResponse{Claims: claims}, nil
}

func (betaPlugin) NodeUnprepareResources(
	_ context.Context, request *beta.NodeUnprepareResourcesRequest,
) (*beta.NodeUnprepareResourcesResponse, error) {
	claims := map[string]*beta.NodeUnprepareResourceResponse{}
	for _, claim := range request.Claims {
		fmt.Println("unprepare-beta", claim.Namespace, claim.Name, claim.Uid)
		claims[claim.Uid] = &beta.NodeUnprepareResourceResponse{}
	}
	return &beta.NodeUnprepareResourcesResponse{Claims: claims}, nil
}

func (plugin) NodeWatchResources(
	_ *health.NodeWatchResourcesRequest, stream health.DRAResourceHealth_NodeWatchResourcesServer,
) error {
	found := &health.DeviceHealth{
		Device:          &health.DeviceIdentifier{PoolName: pool, DeviceName: device},
		Health:          health.HealthStatus_UNHEALTHY,
		LastUpdatedTime: time.Now().Unix(),
		Message:         "said in Go",
	}
	err := stream.Send(&health.NodeWatchResourcesResponse{Devices: []*health.DeviceHealth{found}})
	if err == nil {
		<-stream.Context().Done()
	}
	return err
}

func main() {
	flag.Parse()
	go socket.Serve(*endpoint, func(server *grpc.Server) {
		if *onlyBeta {
			beta.RegisterDRAPluginServer(server, betaPlugin{})
			return
		}
		dra.RegisterDRAPluginServer(server, plugin{})
		health.RegisterDRAResourceHealthServer(server, plugin{})
	})
	socket.Serve(*registry, func(server *grpc.Server) { registration.RegisterRegistrationServer(server, plugin{}) })
}
