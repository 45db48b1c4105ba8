// The command for a first claim, for a cluster with devices and no claims.

/** Returns a command that creates a claim for a device of the class, and a pod that uses it. */
export function firstClaim(className) {
  return `dralloc apply -f - <<'END'
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: first}
spec:
  devices:
    requests:
      - name: device
        exactly: {deviceClassName: ${className}}
---
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  resourceClaims: [{name: device, resourceClaimName: first}]
  containers:
    - name: main
      image: registry.k8s.io/pause:3.10
      resources: {claims: [{name: device}]}
END`;
}
