"""Metrics of requests."""

from __future__ import annotations

from tests.server.claim_lists import collect, create_claims
from tests.support.local_api import (
    CLAIMS,
    LocalApi,
    with_api,
)


@with_api
async def test_requests_are_counted(api: LocalApi) -> None:
    await create_claims(api, 3)
    await api.call("GET", f"{CLAIMS}/nope")
    await collect(api, CLAIMS, timeoutSeconds="1")
    text = (await api.call("GET", "/metrics")).document
    scope = 'group="resource.k8s.io",version="v1",resource="resourceclaims",subresource=""'
    assert (
        f'apiserver_request_total{{verb="POST",dry_run="",{scope},scope="namespace",component="apiserver",code="201"}} 3\n'
        in text
    )
    assert (
        f'apiserver_request_total{{verb="GET",dry_run="",{scope},scope="resource",component="apiserver",code="404"}} 1\n'
        in text
    )
    assert (
        f'apiserver_request_total{{verb="WATCH",dry_run="",{scope},scope="namespace",component="apiserver",code="200"}} 1\n'
        in text
    )
    assert 'apiserver_request_duration_seconds_count{verb="POST"' in text
    assert 'apiserver_longrunning_requests{verb="WATCH"} 0\n' in text
