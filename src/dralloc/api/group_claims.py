"""Claims of PodGroups (KEP-5729): which claims of a pod are its group's, and for whom they are reserved."""

from __future__ import annotations

from dralloc.api.pod_claims import claims_of
from dralloc.api.pod_v1 import Pod, PodResourceClaim
from dralloc.api.resource_v1 import ConsumerReference
from dralloc.api.scheduling_v1 import GROUP
from dralloc.api.scheduling_v1beta1 import PodGroup


def group_reference(group: PodGroup) -> ConsumerReference:
    """The consumer that stands for all pods of the group."""
    return ConsumerReference(api_group=GROUP, resource="podgroups", name=group.metadata.name, uid=group.metadata.uid)


def is_shared(entry: PodResourceClaim, group: PodGroup) -> bool:
    """True if the pod's entry means the claim of an entry of its group: name and source are the same."""
    return any(
        (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
        == (shared.name, shared.resource_claim_name, shared.resource_claim_template_name)
        for shared in group.spec.resource_claims
    )


def shares_claim(pod: Pod, claim: str, group: PodGroup | None) -> bool:
    """True if the pod uses the claim as a member of the group."""
    if group is None or not group.spec.resource_claims:
        return False
    entries = {entry.name: entry for entry in pod.spec.resource_claims}
    return any(
        use.claim == claim and use.entry in entries and is_shared(entries[use.entry], group) for use in claims_of(pod)
    )
