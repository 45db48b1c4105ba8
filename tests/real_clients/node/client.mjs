// @kubernetes/client-node: list, watch, create, patch, delete.
import assert from "node:assert";
import * as k8s from "@kubernetes/client-node";

const [kubeconfig, namespace] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const api = config.makeApiClient(k8s.ResourceV1Api);

const exactly = { deviceClassName: "nic.example.com", capacity: { requests: { bandwidth: "1G" } } };
const body = {
  apiVersion: "resource.k8s.io/v1",
  kind: "ResourceClaim",
  metadata: { name: "node" },
  spec: { devices: { requests: [{ name: "nic", exactly }] } },
};
await api.createNamespacedResourceClaim({ namespace, body });

const listed = await api.listNamespacedResourceClaim({ namespace });
assert.deepEqual(listed.items.map((item) => item.metadata.name), ["node"]);

const patched = await api.patchNamespacedResourceClaim(
  { name: "node", namespace, body: { metadata: { labels: { patched: "yes" } } } },
  k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch),
);
assert.equal(patched.metadata.labels.patched, "yes");

const path = `/apis/resource.k8s.io/v1/namespaces/${namespace}/resourceclaims`;
const seen = await new Promise((resolve, reject) => {
  new k8s.Watch(config)
    .watch(path, {}, (type, item) => resolve([type, item.metadata.name]), reject)
    .then((request) => setTimeout(() => request.abort(), 5000).unref());
});
assert.deepEqual(seen, ["ADDED", "node"]);

await api.deleteNamespacedResourceClaim({ name: "node", namespace });
assert.equal((await api.listNamespacedResourceClaim({ namespace })).items.length, 0);
console.log("create list patch watch delete");
process.exit(0);
