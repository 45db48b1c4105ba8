"""Preemption writes what was planned only into what the plan has seen."""

from __future__ import annotations

import asyncio

from dralloc.client.api_calls import ApiCalls
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import key_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.bind.evictor import Evictor
from dralloc.scheduler.contract import PlannedVictim
from dralloc.system_clock import SystemClock
from tests.support.api_server import TOKEN, api_application
from tests.support.local_api import pod_document

PODS = resource_for(Pod)
GROUPS = resource_for(PodGroup)


def test_a_group_that_has_changed_is_not_preempted() -> None:
    async def main() -> None:
        async with api_application(gates=FeatureGates.parse("GenericWorkload=true")) as application:
            calls = ApiCalls(InProcessTransport(application, token=TOKEN))
            document = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
            known = await calls.create(GROUPS, document, namespace="default")
            victim = await calls.create(PODS, pod_document("victim"), namespace="default")
            waiting = await calls.create(PODS, pod_document("waiting"), namespace="default")
            changed = await calls.patch(GROUPS, key_of(known), {"metadata": {"labels": {"restored": "yes"}}})
            evictor = Evictor(calls, SystemClock())
            ended, failure = await evictor.evict(waiting, [PlannedVictim(victim, "n")], [known])
            assert (ended, "cannot write the condition of pod group g" in (failure or "")) == ([], True)
            assert await calls.get(GROUPS, key_of(known)) == changed
            assert await calls.get(PODS, key_of(victim)) == victim
            assert await evictor.evict(waiting, [PlannedVictim(victim, "n")], [changed]) == (
                [PlannedVictim(victim, "n")],
                None,
            )
            assert [each.type for each in (await calls.get(GROUPS, key_of(known))).status.conditions] == [
                "DisruptionTarget"
            ]

    asyncio.run(main())


def test_the_nomination_is_stored_before_an_eviction_even_if_an_old_pod_shows_it() -> None:
    async def main() -> None:
        async with api_application() as application:
            calls = ApiCalls(InProcessTransport(application, token=TOKEN))
            evictor = Evictor(calls, SystemClock())
            created = await calls.create(PODS, pod_document("p"), namespace="default")
            assert await evictor.nominate(created, "n") is None
            shown = await calls.get(PODS, key_of(created))
            assert await evictor.nominate(shown, "") is None
            assert await evictor.nominate(shown, "n", evicts=True) is None
            assert (await calls.get(PODS, key_of(created))).status.nominated_node_name == "n"

    asyncio.run(main())
