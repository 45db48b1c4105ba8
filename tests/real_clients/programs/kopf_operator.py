"""kopf: a handler on claims fires, and its patch arrives."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import kopf
import kubernetes.client
import kubernetes.config
from claim import named

KUBECONFIG, NAMESPACE = sys.argv[1:]

os.environ["KUBECONFIG"] = KUBECONFIG
settings = kopf.OperatorSettings()
settings.posting.enabled = False
registry = kopf.OperatorRegistry()


@kopf.on.login(registry=registry)
def login(**connection: Any) -> Any:
    return kopf.login_with_kubeconfig(**connection)


@kopf.on.create("resource.k8s.io", "v1", "resourceclaims", registry=registry)
def created(patch: kopf.Patch, **_: Any) -> None:
    patch.metadata.annotations["handled"] = "yes"


async def main() -> None:
    ready, stop = asyncio.Event(), asyncio.Event()
    operating = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=[NAMESPACE],
            ready_flag=ready,
            stop_flag=stop,
            standalone=True,
        )
    )
    await ready.wait()
    with kubernetes.config.new_client_from_config(KUBECONFIG) as api_client:
        api = kubernetes.client.ResourceV1Api(api_client)
        await asyncio.to_thread(api.create_namespaced_resource_claim, NAMESPACE, named("handled", NAMESPACE))
        while True:
            claim = await asyncio.to_thread(api.read_namespaced_resource_claim, "handled", NAMESPACE)
            if (claim.metadata.annotations or {}).get("handled") == "yes":
                break
            await asyncio.sleep(0.1)
        stop.set()
        await operating
        api.delete_namespaced_resource_claim("handled", NAMESPACE)


asyncio.run(asyncio.wait_for(main(), 100))
sys.stdout.write("handler fired\n")
