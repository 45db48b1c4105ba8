// A whole driver without our SDK: it publishes a slice, reads claims from the API server, writes CDI files and a checkpoint, and reports
// health. The driver kit is tested with it, so that no check depends on how our SDK works.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	_ "dralloc/codec"
	health "dralloc/dra_health_v1"
	dra "dralloc/dra_v1"
	beta "dralloc/dra_v1beta1"
	registration "dralloc/plugin_registration"
	"dralloc/socket"
)

const (
	name       = "go.example.com"
	kind       = "k8s.go.example.com/claim"
	lookAgain  = 200 * time.Millisecond
	apiTimeout = 30 * time.Second
)

var (
	node     = flag.String("node", "", "the node")
	config   = flag.String("kubeconfig", "", "the kubeconfig file")
	registry = flag.String("registry", "", "the directory for the registration socket")
	plugins  = flag.String("plugins", "", "the directory for the socket and the checkpoint")
	cdi      = flag.String("cdi", "", "the directory for CDI files")
)

// --- API server ---------------------------------------------------------------------------------------------------------

type api struct {
	client *http.Client
	server string
	token  string
}

func connect(path string) (*api, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	field := func(key string) string {
		found := regexp.MustCompile(key + `:\s*"?([^\s"]+)`).FindSubmatch(content)
		if found == nil {
			return ""
		}
		return string(found[1])
	}
	authority, err := base64.StdEncoding.DecodeString(field("certificate-authority-data"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	return &api{&http.Client{Transport: transport, Timeout: apiTimeout}, field("server"), field("token")}, nil
}

func (a *api) call(ctx context.Context, method, path string, body, answer any) (int, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, content)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode < 300 && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return response.StatusCode, err
}

type object = map[string]any

type result struct {
	Request string  `json:"request"`
	Driver  string  `json:"driver"`
	Pool    string  `json:"pool"`
	Device  string  `json:"device"`
	ShareID *string `json:"shareID"`
}

type resourceClaim struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
	Status struct {
		Allocation *struct {
			Devices struct {
				Results []result `json:"results"`
			} `json:"devices"`
		} `json:"allocation"`
	} `json:"status"`
}

type slice struct {
	Metadata object `json:"metadata"`
	Spec     struct {
		Pool struct {
			Generation         int `json:"generation"`
			ResourceSliceCount int `json:"resourceSliceCount"`
		} `json:"pool"`
		Devices []struct {
			Name string `json:"name"`
		} `json:"devices"`
	} `json:"spec"`
}

// --- Slices -------------------------------------------------------------------------------------------------------------

var cards = []string{"card-0", "card-1"}

func (d *driver) spec(generation int) object {
	memory := object{"value": "16Gi", "requestPolicy": object{"default": "1Gi", "validRange": object{"min": "1Gi", "step": "1Gi"}}}
	devices := []object{}
	for _, card := range cards {
		devices = append(devices, object{"name": card, "allowMultipleAllocations": true, "capacity": object{"memory": memory}})
	}
	pool := object{"name": *node, "generation": generation, "resourceSliceCount": 1}
	return object{"driver": name, "nodeName": *node, "pool": pool, "devices": devices}
}

// publish makes the slices of this node what they should be, with a generation that never falls.
func (d *driver) publish(ctx context.Context) error {
	const path = "/apis/resource.k8s.io/v1/resourceslices"
	var found struct {
		Items []slice `json:"items"`
	}
	selector := url.QueryEscape("spec.driver=" + name + ",spec.nodeName=" + *node)
	if _, err := d.api.call(ctx, "GET", path+"?fieldSelector="+selector, nil, &found); err != nil {
		return err
	}
	generation := 1
	for _, item := range found.Items {
		if item.Spec.Pool.Generation > generation {
			generation = item.Spec.Pool.Generation
		}
	}
	if len(found.Items) == 1 && len(found.Items[0].Spec.Devices) == len(cards) {
		return nil
	}
	if len(found.Items) == 1 {
		metadata := found.Items[0].Metadata
		_, err := d.api.call(ctx, "PUT", path+"/"+metadata["name"].(string), document(metadata, d.spec(generation)), nil)
		return err
	}
	for _, item := range found.Items {
		if _, err := d.api.call(ctx, "DELETE", path+"/"+item.Metadata["name"].(string), nil, nil); err != nil {
			return err
		}
	}
	var owner struct {
		Metadata object `json:"metadata"`
	}
	if _, err := d.api.call(ctx, "GET", "/api/v1/nodes/"+*node, nil, &owner); err != nil {
		return err
	}
	reference := object{"apiVersion": "v1", "kind": "Node", "name": *node, "uid": owner.Metadata["uid"]}
	metadata := object{"generateName": name + "-", "ownerReferences": []object{reference}}
	_, err := d.api.call(ctx, "POST", path, document(metadata, d.spec(generation)), nil)
	return err
}

func document(metadata, spec object) object {
	return object{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
}

// --- Claims -------------------------------------------------------------------------------------------------------------

type prepared struct {
	Request, Pool, Device, CDI string
	Share                      *string
}

type record struct {
	Namespace, Name, UID string
	Devices              []prepared
}

type driver struct {
	api  *api
	lock sync.Mutex
	// How often a claim was released: a preparation that began before must not end.
	released map[string]int
}

func (d *driver) recordPath(uid string) string {
	return filepath.Join(*plugins, name, "claims", uid+".json")
}
func (d *driver) cdiPath(uid string) string { return filepath.Join(*cdi, name+"-"+uid+".json") }

func (d *driver) recorded(uid string) (*record, error) {
	content, err := os.ReadFile(d.recordPath(uid))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found record
	return &found, json.Unmarshal(content, &found)
}

func (d *driver) prepare(ctx context.Context, namespace, claimName, uid string) ([]prepared, error) {
	d.lock.Lock()
	before := d.released[uid]
	known, err := d.recorded(uid)
	d.lock.Unlock()
	if err != nil {
		return nil, err
	}
	if known != nil {
		return known.Devices, nil
	}
	var claim resourceClaim
	path := "/apis/resource.k8s.io/v1/namespaces/" + namespace + "/resourceclaims/" + claimName
	status, err := d.api.call(ctx, "GET", path, nil, &claim)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK || claim.Metadata.UID != uid {
		return nil, fmt.Errorf("claim %s/%s with UID %s does not exist", namespace, claimName, uid)
	}
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s is not allocated", namespace, claimName)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.released[uid] != before {
		return nil, fmt.Errorf("claim %s/%s was released meanwhile", namespace, claimName)
	}
	if known, err = d.recorded(uid); err != nil || known != nil {
		return devicesOf(known), err
	}
	devices, err := describe(uid, claim.Status.Allocation.Devices.Results)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(d.recordPath(uid), record{namespace, claimName, uid, devices}); err != nil {
		return nil, err
	}
	if err := writeJSON(d.cdiPath(uid), cdiDocument(devices)); err != nil {
		os.Remove(d.recordPath(uid))
		return nil, err
	}
	return devices, nil
}

func devicesOf(known *record) []prepared {
	if known == nil {
		return nil
	}
	return known.Devices
}

func describe(uid string, results []result) ([]prepared, error) {
	devices := []prepared{}
	for index, each := range results {
		if each.Driver != name {
			continue
		}
		if each.Device != cards[0] && each.Device != cards[1] {
			return nil, fmt.Errorf("there is no device %s", each.Device)
		}
		request, _, _ := strings.Cut(each.Request, "/")
		cdiName := fmt.Sprintf("%s=%s-%d", kind, uid, index)
		devices = append(devices, prepared{request, each.Pool, each.Device, cdiName, each.ShareID})
	}
	return devices, nil
}

func cdiDocument(devices []prepared) object {
	described := []object{}
	for _, each := range devices {
		_, short, _ := strings.Cut(each.CDI, "=")
		edits := object{"env": []string{"CARD=" + each.Device}}
		described = append(described, object{"name": short, "containerEdits": edits})
	}
	return object{"cdiVersion": "0.5.0", "kind": kind, "devices": described}
}

func (d *driver) unprepare(uid string) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.released[uid]++
	for _, path := range []string{d.cdiPath(uid), d.recordPath(uid)} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// forgetDeleted releases claims that no longer exist.
func (d *driver) forgetDeleted(ctx context.Context) {
	entries, _ := os.ReadDir(filepath.Join(*plugins, name, "claims"))
	for _, entry := range entries {
		known, err := d.recorded(strings.TrimSuffix(entry.Name(), ".json"))
		if err != nil || known == nil {
			continue
		}
		var claim resourceClaim
		path := "/apis/resource.k8s.io/v1/namespaces/" + known.Namespace + "/resourceclaims/" + known.Name
		status, err := d.api.call(ctx, "GET", path, nil, &claim)
		if err == nil && (status == http.StatusNotFound || (status == http.StatusOK && claim.Metadata.UID != known.UID)) {
			d.unprepare(known.UID)
		}
	}
}

func writeJSON(path string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		os.Remove(temporary)
		return err
	}
	return os.Rename(temporary, path)
}

// --- Services -----------------------------------------------------------------------------------------------------------

type v1Service struct {
	dra.UnimplementedDRAPluginServer
	*driver
}

func (s v1Service) NodePrepareResources(
	ctx context.Context, request *dra.NodePrepareResourcesRequest,
) (*dra.NodePrepareResourcesResponse, error) {
	claims := map[string]*dra.NodePrepareResourceResponse{}
	for _, claim := range request.Claims {
		devices, err := s.prepare(ctx, claim.Namespace, claim.Name, claim.Uid)
		answer := &dra.NodePrepareResourceResponse{Error: textOf(err)}
		for _, each := range devices {
			answer.Devices = append(answer.Devices, &dra.Device{RequestNames: []string{each.Request}, PoolName: each.Pool,
				DeviceName: each.Device, CdiDeviceIds: []string{each.CDI}, ShareId: each.Share})
		}
		claims[claim.Uid] = answer
	}
	return &dra.NodePrepareResourcesResponse{Claims: claims}, nil
}

func (s v1Service) NodeUnprepareResources(
	_ context.Context, request *dra.NodeUnprepareResourcesRequest,
) (*dra.NodeUnprepareResourcesResponse, error) {
	claims := map[string]*dra.NodeUnprepareResourceResponse{}
	for _, claim := range request.Claims {
		claims[claim.Uid] = &dra.NodeUnprepareResourceResponse{Error: textOf(s.unprepare(claim.Uid))}
	}
	return &dra.NodeUnprepareResourcesResponse{Claims: claims}, nil
}

type betaService struct {
	beta.UnimplementedDRAPluginServer
	*driver
}

func (s betaService) NodePrepareResources(
	ctx context.Context, request *beta.NodePrepareResourcesRequest,
) (*beta.NodePrepareResourcesResponse, error) {
	claims := map[string]*beta.NodePrepareResourceResponse{}
	for _, claim := range request.Claims {
		devices, err := s.prepare(ctx, claim.Namespace, claim.Name, claim.Uid)
		answer := &beta.NodePrepareResourceResponse{Error: textOf(err)}
		for _, each := range devices {
			answer.Devices = append(answer.Devices, &beta.Device{RequestNames: []string{each.Request}, PoolName: each.Pool,
				DeviceName: each.Device, CdiDeviceIds: []string{each.CDI}})
		}
		claims[claim.Uid] = answer
	}
	return &beta.NodePrepareResourcesResponse{Claims: claims}, nil
}

func (s betaService) NodeUnprepareResources(
	_ context.Context, request *beta.NodeUnprepareResourcesRequest,
) (*beta.NodeUnprepareResourcesResponse, error) {
	claims := map[string]*beta.NodeUnprepareResourceResponse{}
	for _, claim := range request.Claims {
		claims[claim.Uid] = &beta.NodeUnprepareResourceResponse{Error: textOf(s.unprepare(claim.Uid))}
	}
	return &beta.NodeUnprepareResourcesResponse{Claims: claims}, nil
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

type healthService struct {
	health.UnimplementedDRAResourceHealthServer
}

func (healthService) NodeWatchResources(
	_ *health.NodeWatchResourcesRequest, stream health.DRAResourceHealth_NodeWatchResourcesServer,
) error {
	for {
		devices := []*health.DeviceHealth{}
		for _, card := range cards {
			devices = append(devices, &health.DeviceHealth{
				Device:          &health.DeviceIdentifier{PoolName: *node, DeviceName: card},
				Health:          health.HealthStatus_HEALTHY,
				LastUpdatedTime: time.Now().Unix(),
			})
		}
		if err := stream.Send(&health.NodeWatchResourcesResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

type registrationService struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (s registrationService) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	versions := []string{"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth"}
	return &registration.PluginInfo{Type: "DRAPlugin", Name: name, Endpoint: s.endpoint, SupportedVersions: versions}, nil
}

func (registrationService) NotifyRegistrationStatus(
	context.Context, *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	flag.Parse()
	connection, err := connect(*config)
	if err != nil {
		log.Fatal(err)
	}
	for _, directory := range []string{filepath.Join(*plugins, name, "claims"), *cdi} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			log.Fatal(err)
		}
	}
	own := &driver{api: connection, released: map[string]int{}}
	endpoint := filepath.Join(*plugins, name, "dra.sock")
	go socket.Serve(endpoint, func(server *grpc.Server) {
		dra.RegisterDRAPluginServer(server, v1Service{driver: own})
		beta.RegisterDRAPluginServer(server, betaService{driver: own})
		health.RegisterDRAResourceHealthServer(server, healthService{})
	})
	go socket.Serve(filepath.Join(*registry, name+"-reg.sock"), func(server *grpc.Server) {
		registration.RegisterRegistrationServer(server, registrationService{endpoint: endpoint})
	})
	for {
		if err := own.publish(context.Background()); err != nil {
			log.Print(err)
		}
		own.forgetDeleted(context.Background())
		time.Sleep(lookAgain)
	}
}
