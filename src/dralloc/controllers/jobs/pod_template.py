"""The documents and names of a job's pods, from the job's pod template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dralloc.controllers.jobs.pod_tracker import COMPLETION_INDEX
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.primitives.names import LENGTH_MAX, SUFFIX_LENGTH, suffix

JOB_NAME: Final = "batch.kubernetes.io/job-name"
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"

Document = dict[str, Any]


class PodNames:
    """Unused names for the pods of one job, each returned once."""

    def __init__(self, job: UnstructuredObject, is_taken: Callable[[str], bool]) -> None:
        self._job = job.metadata.name
        self._uid = job.metadata.uid
        self._is_taken = is_taken
        self._serial = 0

    def next(self, index: int | None) -> str:
        # Bounded: every name that is skipped belongs to an existing pod.
        while True:
            name = f"{name_base(self._job, index)}{suffix(self._uid, self._serial)}"
            self._serial += 1
            if not self._is_taken(name):
                return name


def name_base(job: str, index: int | None) -> str:
    """The prefix of the pod's name, short enough for a host name. The index is never cut."""
    ending = "-" if index is None else f"-{index}-"
    return f"{job[: LENGTH_MAX - SUFFIX_LENGTH - len(ending)].rstrip('.-')}{ending}"


def pod_document(job: UnstructuredObject, name: str, index: int | None, group: str = "") -> Document:
    """`group` is the PodGroup that was made for the job."""
    template: Document = job.member("spec").get("template") or {}
    metadata: Document = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        JOB_NAME: job.metadata.name,
        CONTROLLER_UID: job.metadata.uid,
        "job-name": job.metadata.name,
        "controller-uid": job.metadata.uid,
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    document: Document = {
        "metadata": {
            **metadata,
            "name": name,
            "generateName": name_base(job.metadata.name, index),
            "namespace": job.metadata.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {**(template.get("spec") or {}), **({"schedulingGroup": {"podGroupName": group}} if group else {})},
    }
    return document if index is None else _indexed(document, job.metadata.name, index)


def _indexed(document: Document, job: str, index: int) -> Document:
    """The document with the completion index as label, annotation, host name and environment variable."""
    metadata, spec, text = document["metadata"], document["spec"], str(index)
    containers = {
        member: [_with_variable(container, text) for container in spec[member]]
        for member in ("initContainers", "containers")
        if spec.get(member)
    }
    return {
        "metadata": {
            **metadata,
            "labels": {**metadata["labels"], COMPLETION_INDEX: text},
            "annotations": {**(metadata.get("annotations") or {}), COMPLETION_INDEX: text},
        },
        "spec": {"hostname": name_base(job, index).rstrip("-"), **spec, **containers},
    }


def _with_variable(container: Document, text: str) -> Document:
    variables: list[Document] = container.get("env") or []
    if any(variable.get("name") == INDEX_VARIABLE for variable in variables):
        return container
    return {**container, "env": [*variables, {"name": INDEX_VARIABLE, "value": text}]}
