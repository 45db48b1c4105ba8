"""The verbs of kubectl, each with what it must print on this server: the table that `test_kubectl_verbs` runs.

`{…}` in a command or text is a name of the scene. The order matters in a group only: each group has objects of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A command, and what it must print. `code` is the exit code; a refusal is not a success, but must be clear."""

    name: str
    command: str
    prints: str = ""
    code: int = 0
    # The first kubectl 1.x that has the command, and asks for a version of the kind that Kubernetes 1.37 still has.
    since: int = 0

    @property
    def is_refusal(self) -> bool:
        return self.code != 0


def _verb(name: str, command: str, prints: str = "", **options: object) -> Verb:
    return Verb(name=name, command=command, prints=prints, **options)  # type: ignore[arg-type]


VERBS = (
    # --- create ---
    _verb("create -f", "create -f {directory}/configmap.yaml", "configmap/from-file created"),
    _verb("create clusterrole", "create clusterrole {ns}-reader --verb=get --resource=pods", "created"),
    _verb(
        "create clusterrolebinding",
        "create clusterrolebinding {ns}-readers --clusterrole={ns}-reader --user=ann",
        "created",
    ),
    _verb("create configmap", "create configmap made --from-literal=a=b", "configmap/made created"),
    _verb(
        "create cronjob",
        "create cronjob nightly --image=busybox --schedule=@daily",
        "cronjob.batch/nightly created",
        since=21,
    ),
    _verb("create deployment", "create deployment made --image=busybox", "deployment.apps/made created"),
    _verb("create ingress", "create ingress made --rule=host/path=svc:80", "ingress.networking.k8s.io/made created"),
    _verb("create job", "create job made --image=busybox -- true", "job.batch/made created"),
    _verb("create namespace", "create namespace {ns}-made", "created"),
    _verb(
        "create poddisruptionbudget",
        "create poddisruptionbudget made --selector=a=b --min-available=1",
        "created",
        since=21,
    ),
    _verb("create priorityclass", "create priorityclass {ns}-high --value=10", "created"),
    _verb("create quota", "create quota made --hard=pods=100", "resourcequota/made created"),
    _verb("create role", "create role made --verb=get --resource=pods", "created"),
    _verb("create rolebinding", "create rolebinding made --role=made --user=ann", "created"),
    _verb("create secret generic", "create secret generic made --from-literal=a=b", "secret/made created"),
    _verb(
        "create secret docker-registry",
        "create secret docker-registry login --docker-username=u --docker-password=p",
        "secret/login created",
    ),
    _verb("create service clusterip", "create service clusterip made --tcp=80", "service/made created"),
    _verb("create service nodeport", "create service nodeport made-port --tcp=80", "service/made-port created"),
    _verb("create service loadbalancer", "create service loadbalancer made-lb --tcp=80", "service/made-lb created"),
    _verb("create service externalname", "create service externalname made-name --external-name=a.b", "created"),
    _verb("create serviceaccount", "create serviceaccount made", "serviceaccount/made created"),
    _verb("create token", "create token made", "ey", since=24),
    _verb("run", "run ran --image=busybox --restart=Never --command -- sleep 1000", "pod/ran created"),
    _verb("expose", "expose pod web --port=80 --name=exposed", "service/exposed exposed"),
    # --- set ---
    _verb("set env", "set env deployment/dep A=b", "deployment.apps/dep env updated"),
    _verb("set image", "set image deployment/dep c=busybox:3", "deployment.apps/dep image updated"),
    _verb("set resources", "set resources deployment/dep --limits=cpu=1", "resource requirements updated"),
    _verb("set selector", "set selector service/svc a=c", "service/svc selector updated"),
    _verb("set serviceaccount", "set serviceaccount deployment/dep made", "serviceaccount updated"),
    _verb("set subject", "set subject rolebinding/made --user=bob", "subjects updated"),
    # --- read ---
    _verb("explain", "explain pod.spec.containers", "KIND:"),
    _verb("explain a stored kind", "explain deployment", "Deployment"),
    _verb("get", "get pods", "web"),
    _verb("get -o wide", "get deployments -o wide", "SELECTOR"),
    _verb("get all", "get all", "deployment.apps/dep"),
    _verb("get --raw", "get --raw /healthz", "ok"),
    _verb("get --subresource", "get deployment dep --subresource=scale", "dep", since=24),
    _verb("describe pod", "describe pod web", "Node:"),
    _verb("describe node", "describe node {node}", "Non-terminated Pods"),
    _verb("describe deployment", "describe deployment dep", "Replicas:"),
    _verb("describe service", "describe service svc", "Port:"),
    _verb("events", "events", since=24),
    _verb("get events", "get events"),
    _verb("api-resources", "api-resources", "deployments"),
    _verb("api-versions", "api-versions", "apps/v1"),
    _verb("version", "version", "1.37"),
    _verb("cluster-info", "cluster-info", "running at"),
    _verb("cluster-info dump", "cluster-info dump", "START logs for container c of pod {ns}/web"),
    # --- write ---
    _verb("apply", "apply -f {directory}/configmap.yaml", "configmap/from-file"),
    _verb(
        "apply --server-side",
        "apply --server-side --force-conflicts -f {directory}/configmap.yaml",
        "serverside-applied",
    ),
    _verb("apply view-last-applied", "apply view-last-applied configmap/from-file", "from-file"),
    _verb("apply set-last-applied", "apply set-last-applied -f {directory}/configmap.yaml"),
    _verb("apply edit-last-applied", "apply edit-last-applied configmap/from-file"),
    _verb("diff", "diff -f {directory}/changed.yaml", "+  a: changed", code=1),
    _verb("edit", "edit configmap/from-file", "Edit cancelled, no changes made."),
    _verb("patch", 'patch configmap from-file -p {{"data":{{"x":"y"}}}}', "patched"),
    _verb("replace", "replace -f {directory}/changed.yaml", "replaced"),
    _verb("label", "label configmap from-file l=m", "labeled"),
    _verb("annotate", "annotate configmap from-file n=o", "annotated"),
    _verb("kustomize", "kustomize {directory}", "name: from-file"),
    _verb("apply -k", "apply -k {directory}", "configmap/from-file"),
    _verb("wait", "wait --for=condition=Ready pod/web --timeout=30s", "condition met"),
    _verb("delete", "delete configmap from-file", "deleted"),
    # --- workloads ---
    _verb("scale", "scale deployment/dep --replicas=3", "deployment.apps/dep scaled"),
    _verb("scale replicaset", "scale replicaset/rs --replicas=3", "scaled"),
    _verb("scale statefulset", "scale statefulset/sts --replicas=3", "scaled"),
    _verb("scale replicationcontroller", "scale replicationcontroller/rc --replicas=3", "scaled"),
    _verb("autoscale", "autoscale deployment/dep --max=5 --cpu-percent=80", "autoscaled"),
    _verb("rollout history", "rollout history deployment/rolled", "2"),
    _verb("rollout history --revision", "rollout history deployment/rolled --revision=1", "busybox:1"),
    _verb("rollout status", "rollout status deployment/rolled --timeout=30s", "successfully rolled out"),
    _verb("rollout undo", "rollout undo deployment/rolled", "rolled back"),
    _verb("rollout restart", "rollout restart deployment/dep", "restarted"),
    _verb("rollout pause", "rollout pause deployment/dep", "paused"),
    _verb("rollout resume", "rollout resume deployment/dep", "resumed"),
    # --- logs of pods ---
    _verb("logs", "logs web", "started"),
    _verb("logs options", "logs web --tail=1 --timestamps --since=1h --limit-bytes=1000", "Z started"),
    _verb("logs -l", "logs -l app=web", "started"),
    # --- the cluster ---
    _verb("cordon", "cordon {node}", "cordoned"),
    _verb("drain", "drain {node} --ignore-daemonsets --force --pod-selector=drained=yes", "pod/away evicted"),
    _verb("uncordon", "uncordon {node}", "uncordoned"),
    _verb("taint", "taint node {node} {ns}=yes:PreferNoSchedule", "tainted"),
    # --- access ---
    _verb("auth can-i", "auth can-i get pods", "yes"),
    _verb("auth can-i --list", "auth can-i --list", "selfsubjectaccessreviews"),
    _verb("auth reconcile", "auth reconcile -f {directory}/role.yaml", "reconciled"),
    _verb("auth whoami", "auth whoami", "dralloc-admin", since=26),
    # --- debug ---
    _verb("debug", "debug web --image=busybox -c debugger -- sleep 1", since=20),
    _verb("debug --copy-to", "debug web --image=busybox --copy-to=copy -c debugger -- sleep 1", since=20),
    _verb("debug node", "debug node/{node} --image=busybox -- true", "", since=20),
    # --- what this server has not ---
    _verb("exec", "exec web -- true", "pods/exec (commands", code=1),
    _verb("attach", "attach web", "pods/attach (input", code=1),
    _verb("port-forward", "port-forward web 80", "pods/portforward (ports", code=1),
    _verb("top node", "top node", "Metrics API not available", code=1),
    _verb("certificate approve", "certificate approve any", "the server doesn't have a resource type", code=1),
    _verb("top pod", "top pod", "Metrics API not available", code=1),
    # --- the client's own ---
    _verb("config view", "config view", "clusters"),
    _verb("config get-contexts", "config get-contexts", "dralloc"),
    _verb("config current-context", "config current-context", "dralloc"),
    _verb("plugin list", "plugin list", "plugins", code=1),
    _verb("completion", "completion bash", "kubectl"),
    _verb("options", "options", "--kubeconfig"),
)
