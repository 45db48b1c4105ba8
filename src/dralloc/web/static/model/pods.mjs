// The displayed fields of a pod, and the parsed message of its PodScheduled condition.

/** Returns the displayed fields of a pod. */
export function podOf(key, object) {
  const { metadata } = object;
  const [spec, status] = [object.spec ?? {}, object.status ?? {}];
  const scheduled = (status.conditions ?? []).find(({ type }) => type === "PodScheduled");
  const made = new Map((status.resourceClaimStatuses ?? []).map((each) => [each.name, each.resourceClaimName]));
  return {
    key,
    name: metadata.name,
    namespace: metadata.namespace,
    creationTimestamp: metadata.creationTimestamp,
    isLeaving: Boolean(metadata.deletionTimestamp),
    owner: (metadata.ownerReferences ?? []).find(({ controller }) => controller) ?? null,
    phase: status.phase ?? "Pending",
    node: spec.nodeName ?? "",
    // The name of its PodGroup.
    group: spec.schedulingGroup?.podGroupName ?? "",
    claims: (spec.resourceClaims ?? []).map((entry) => ({
      entry: entry.name,
      template: entry.resourceClaimTemplateName ?? "",
      // Null until the claim is created from its template.
      claim: entry.resourceClaimName ?? made.get(entry.name) ?? null,
    })),
    reason: scheduled?.status === "False" ? (scheduled.reason ?? "") : "",
    message: scheduled?.status === "False" ? (scheduled.message ?? "") : "",
  };
}

/** True if the pod is not scheduled yet. */
export function isPending(pod) {
  return !pod.node && pod.phase === "Pending" && !pod.isLeaving;
}

const AVAILABLE = /^(\d+)\/(\d+) nodes are available(?:: ([^]*))?$/;
const PART = /^(\d+) nodes?: ([^]*)$/;
// Kubernetes' own scheduler: "1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}. preemption: …"
const STOCK_PART = /^(\d+) ([^]+)$/;

/**
 * The message in its parts: how many nodes there are, and how many of them say what, most first. What is no count of nodes
 * stays one part without a number.
 */
export function reasonsOf(message) {
  const match = AVAILABLE.exec(message);
  if (!match) return { total: null, parts: message ? [{ nodes: null, text: message }] : [] };
  const rest = match[3] ?? "";
  const parts = ourParts(rest) ?? stockParts(rest);
  return { available: Number(match[1]), total: Number(match[2]), parts: parts.sort((one, other) => (other.nodes ?? 0) - (one.nodes ?? 0)) };
}

function ourParts(text) {
  if (!text) return [];
  // A reason may contain a semicolon; a new part begins with its number of nodes.
  const pieces = text.split(/; (?=\d+ nodes?: )/).map((piece) => PART.exec(piece));
  return pieces.every(Boolean) ? pieces.map(([, nodes, said]) => ({ nodes: Number(nodes), text: said })) : null;
}

function stockParts(text) {
  const sentences = text.split(/\. (?=preemption: |no new claims|still not)/);
  const parts = sentences[0].replace(/\.$/, "").split(/, (?=\d+ )/).map((piece) => {
    const match = STOCK_PART.exec(piece);
    return match ? { nodes: Number(match[1]), text: match[2] } : { nodes: null, text: piece };
  });
  return [...parts, ...sentences.slice(1).map((sentence) => ({ nodes: null, text: sentence.replace(/\.$/, "") }))];
}

/** Groups pending pods by message, largest group first: ten thousand pods of one job have one reason. */
export function groupedByReason(pods) {
  const groups = new Map();
  for (const pod of pods) {
    const key = `${pod.reason}\n${pod.message}`;
    const group = groups.get(key);
    if (group) group.pods.push(pod);
    else groups.set(key, { reason: pod.reason, message: pod.message, pods: [pod] });
  }
  return [...groups.values()].sort((one, other) => other.pods.length - one.pods.length);
}
