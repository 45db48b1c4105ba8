import assert from "node:assert/strict";
import test from "node:test";

import { groupedByReason, isPending, podOf, reasonsOf } from "../../../src/dralloc/web/static/model/pods.mjs";

const CASES = [
  {
    id: "our scheduler's counts, the largest first",
    message: "0/500 nodes are available: 20 nodes: no devices; 480 nodes: insufficient bandwidth: requested 5Gi, available 2Gi",
    want: { available: 0, total: 500, parts: [{ nodes: 480, text: "insufficient bandwidth: requested 5Gi, available 2Gi" }, { nodes: 20, text: "no devices" }] },
  },
  {
    id: "a reason may hold semicolons and colons itself",
    message: "0/2 nodes are available: 1 node: request gpu: all 8 devices are in use; also 2 tainted; 1 node: no devices",
    want: { available: 0, total: 2, parts: [{ nodes: 1, text: "request gpu: all 8 devices are in use; also 2 tainted" }, { nodes: 1, text: "no devices" }] },
  },
  {
    id: "Kubernetes' own scheduler",
    message: "0/3 nodes are available: 1 Insufficient cpu, 2 cannot allocate all claims. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    want: {
      available: 0,
      total: 3,
      parts: [
        { nodes: 2, text: "cannot allocate all claims" },
        { nodes: 1, text: "Insufficient cpu" },
        { nodes: null, text: "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling" },
      ],
    },
  },
  {
    id: "what is no count stays whole",
    message: "waiting for the claim default/x to be created",
    want: { total: null, parts: [{ nodes: null, text: "waiting for the claim default/x to be created" }] },
  },
  { id: "nothing is nothing", message: "", want: { total: null, parts: [] } },
];

for (const { id, message, want } of CASES) test(id, () => assert.deepEqual(reasonsOf(message), want));

test("pods that are told the same are told once, the many first", () => {
  const pods = ["a", "b", "b"].map((message, index) => podOf(`ns/${index}`, pod({ message })));
  assert.deepEqual(groupedByReason(pods).map(({ message, pods: members }) => [message, members.length]), [["b", 2], ["a", 1]]);
});

test("a pod waits until it has a node, is finished, or goes", () => {
  assert.ok(isPending(podOf("ns/p", pod({}))));
  assert.ok(!isPending(podOf("ns/p", pod({ node: "n" }))));
  assert.ok(!isPending(podOf("ns/p", pod({ phase: "Failed" }))));
  assert.ok(!isPending(podOf("ns/p", pod({ deletionTimestamp: "2026-01-01T00:00:00Z" }))));
});

test("claims are those it names, and those that were made for it", () => {
  const { claims } = podOf("ns/p", {
    metadata: { name: "p", namespace: "ns" },
    spec: { resourceClaims: [{ name: "a", resourceClaimName: "x" }, { name: "b", resourceClaimTemplateName: "t" }, { name: "c", resourceClaimTemplateName: "t" }] },
    status: { resourceClaimStatuses: [{ name: "b", resourceClaimName: "p-b-1" }] },
  });
  assert.deepEqual(claims.map(({ claim }) => claim), ["x", "p-b-1", null]);
});

function pod({ node, phase = "Pending", message, deletionTimestamp }) {
  return {
    metadata: { name: "p", namespace: "ns", deletionTimestamp },
    spec: { nodeName: node },
    status: { phase, conditions: message ? [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }] : [] },
  };
}
