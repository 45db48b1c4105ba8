// A node that speaks with one driver through grpc-go, as a kubelet does: it registers it, asks for its health, prepares a claim
// twice and takes it back.
//
// What it learns is printed as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"

	_ "dralloc/codec"
	health "dralloc/dra_health_v1"
	dra "dralloc/dra_v1"
	registration "dralloc/plugin_registration"
)

var (
	registry  = flag.String("registry", "", "the socket for registration")
	namespace = flag.String("namespace", "default", "the claim's namespace")
	name      = flag.String("name", "", "the claim's name")
	uid       = flag.String("uid", "", "the claim's UID")
	byScheme  = flag.Bool("by-scheme", false, "dial unix:PATH; otherwise PATH with a dialer of our own")
)

type report struct {
	Info       *registration.PluginInfo
	Health     *health.NodeWatchResourcesResponse
	First      *dra.NodePrepareResourcesResponse
	Again      *dra.NodePrepareResourcesResponse
	Unprepared *dra.NodeUnprepareResourcesResponse
}

// Both ways are in use; they differ in the authority that the driver is told: "localhost", or the path itself.
func dial(ctx context.Context, path string) *grpc.ClientConn {
	target, options := "unix:"+path, []grpc.DialOption{grpc.WithInsecure(), grpc.WithBlock()}
	if !*byScheme {
		target = path
	}
	options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}))
	connection, err := grpc.DialContext(ctx, target, options...)
	check(err)
	return connection
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	registrar := registration.NewRegistrationClient(dial(ctx, *registry))
	info, err := registrar.GetInfo(ctx, &registration.InfoRequest{})
	check(err)
	_, err = registrar.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
	check(err)

	connection := dial(ctx, info.Endpoint)
	watch, err := health.NewDRAResourceHealthClient(connection).NodeWatchResources(ctx, &health.NodeWatchResourcesRequest{})
	check(err)
	devices, err := watch.Recv()
	check(err)

	driver := dra.NewDRAPluginClient(connection)
	claims := []*dra.Claim{{Namespace: *namespace, Name: *name, Uid: *uid}}
	first, err := driver.NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: claims})
	check(err)
	again, err := driver.NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: claims})
	check(err)
	unprepared, err := driver.NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{Claims: claims})
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(report{info, devices, first, again, unprepared}))
}
