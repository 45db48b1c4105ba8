"""The pods that Jobs and Deployments of manifests would have, and the claims that a Job holds for its pods.

Of a live cluster, the pods themselves are read.
"""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects, made_up_uid
from dralloc.answers.manifest_cluster import UnusableManifest
from dralloc.controllers.claim_creation import ReportProblem
from dralloc.controllers.jobs.plan import stated_claims
from dralloc.kube.apps_v1 import DaemonSet, Deployment
from dralloc.kube.batch_v1 import GROUP, Job
from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim, ResourceClaimTemplate

Workload = Job | Deployment


def add_workload_pods(objects: ClusterObjects) -> None:
    """Adds the pods of workloads that have none yet. Raises UnusableManifest."""
    owned = [
        (pod.metadata.namespace, owner) for pod in objects.all(Pod).values() if (owner := controller_of(pod.metadata))
    ]
    jobs = {(namespace, owner.name) for namespace, owner in owned if owner.kind == "Job"}
    # A Deployment's pods belong to ReplicaSets, which are named after it.
    deployments = {
        (namespace, owner.name.rpartition("-")[0]) for namespace, owner in owned if owner.kind == "ReplicaSet"
    }
    for key, job in objects.all(Job).items():
        if key not in jobs and not job.is_finished and not job.spec.suspend:
            _add_claims(objects, job)
            _add_pods(objects, job, _parallel_pods(job))
    for key, deployment in objects.all(Deployment).items():
        if key not in deployments:
            _add_pods(objects, deployment, 1 if deployment.spec.replicas is None else deployment.spec.replicas)
    for daemons in objects.all(DaemonSet).values():
        if daemons.spec.template.spec.resource_claims:
            objects.notes.append(f"{_subject(daemons)}: ignored; the pods of DaemonSets are not simulated")


def _parallel_pods(job: Job) -> int:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def _add_claims(objects: ClusterObjects, job: Job) -> None:
    namespace, subject = job.metadata.namespace, _subject(job)
    for stated in stated_claims(job):
        if isinstance(stated, ReportProblem):
            raise UnusableManifest(f"{subject}: {stated.message}")
        name, template_name = stated
        template = objects.all(ResourceClaimTemplate).get((namespace, template_name))
        if template is None:
            raise UnusableManifest(f"{subject}: claim {name}: template {namespace}/{template_name} does not exist")
        if (namespace, name) not in objects.all(ResourceClaim):
            metadata = ObjectMeta(name=name, namespace=namespace, owner_references=(_owner(job),))
            spec = template.spec.spec
            if "DRAReservedForWorkloads" in objects.gates:
                uid = job.metadata.uid or made_up_uid(job)
                spec = replace(
                    spec,
                    reserved_for=ConsumerReference(api_group=GROUP, resource="jobs", name=job.metadata.name, uid=uid),
                )
            objects.add(
                ResourceClaim(api_version="resource.k8s.io/v1", kind="ResourceClaim", metadata=metadata, spec=spec)
            )


def _add_pods(objects: ClusterObjects, workload: Workload, count: int) -> None:
    template = workload.spec.template
    for number in range(count):
        metadata = replace(
            template.metadata,
            name=f"{workload.metadata.name}-{number}",
            namespace=workload.metadata.namespace,
            owner_references=(_owner(workload),),
        )
        objects.add(Pod(api_version="v1", kind="Pod", metadata=metadata, spec=template.spec))
    if template.spec.resource_claims:
        objects.notes.append(f"{_subject(workload)}: counted as {count:,} {'pod' if count == 1 else 'pods'}")


def _subject(workload: Workload | DaemonSet) -> str:
    return f"{workload.kind.lower()} {workload.metadata.namespace}/{workload.metadata.name}"


def _owner(workload: Workload) -> OwnerReference:
    return OwnerReference(
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.metadata.name,
        uid=workload.metadata.uid or made_up_uid(workload),
        controller=True,
    )
