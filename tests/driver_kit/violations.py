"""Drivers that break the contract in one way each, and what the kit says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from dralloc.driver import (
    Driver,
)
from dralloc.driver_kit.driver_under_test import Patience
from dralloc.rpc.plugin_services import DRA_V1
from tests.support import spoilt_calls as spoilt
from tests.support.broken_driver import Broken
from tests.support.kit_drivers import AlwaysHealthy, GoodDriver, Hardware, TooLargePartitions

PATIENT = Patience(settle_s=0.1, cleanup_s=20.0)
# For events that never happen.
QUICK = Patience(start_s=5.0, repair_s=1.0, health_s=0.3, recovery_s=0.5, settle_s=0.1, cleanup_s=0.5)


@dataclass(frozen=True)
class Case:
    id: str
    check: str
    broken: Broken | None = None
    want: str = ""
    make_driver: Callable[[Hardware, int], Driver] = lambda hardware, _: GoodDriver(hardware)
    settings: dict[str, Any] | None = None
    patience: Patience = PATIENT


def set_field(name: str, value: Any) -> Callable[[Any], None]:
    return lambda message: setattr(message, name, value)


NUMBERS = count()

CASES = [
    Case(
        "a stale preparation", "checkpoint.stale-prepare", Broken(prepare=spoilt.ends_late), "ended after the claim was"
    ),
    Case(
        "remembers released claims",
        "checkpoint.released",
        Broken(unprepare=spoilt.only_says_that_it_released),
        "still names the claim's UID",
    ),
    Case("remembers deleted claims", "checkpoint.deleted", want="which was deleted", patience=QUICK),
    Case(
        "records devices of others",
        "checkpoint.foreign",
        Broken(prepare=spoilt.records_all_results),
        "of driver other.driver-test.example.com as a prepared device",
    ),
    Case(
        "half of a preparation blocks",
        "prepare.rollback",
        Broken(prepare=spoilt.remembers_failures, unprepare=spoilt.remembers_failures),
        "the claim is partially prepared",
    ),
    Case(
        "prepares a missing device", "prepare.rollback", Broken(prepare=spoilt.says_yes_to_everything), "does not exist"
    ),
    Case(
        "refuses claims that are being deleted",
        "unprepare.terminating",
        Broken(unprepare=spoilt.refuses_what_is_being_deleted),
        "the claim is being deleted",
    ),
    Case(
        "holds claims",
        "unprepare.terminating",
        Broken(prepare=spoilt.holds_claims_with_a_finalizer),
        "finalizer gpu.example.com/driver of the driver keeps the released claim",
    ),
    Case(
        "always the same generation",
        "slices.generation",
        Broken(rewrite=spoilt.always_generation_1),
        "went back from generation",
        patience=QUICK,
    ),
    Case(
        "deletes the slices of all",
        "slices.other-nodes",
        Broken(when_running=spoilt.delete_all_slices),
        "was deleted by",
    ),
    Case(
        "publishes for others",
        "slices.other-nodes",
        Broken(when_running=spoilt.publish_for_another_node),
        "is for node n9",
    ),
    Case(
        "one share of a device",
        "prepare.two-shares",
        Broken(prepare=spoilt.changed(spoilt.one_entry_for_each_device)),
        "1 devices for 2 shares",
    ),
    Case(
        "all is well",
        "faults.device-lost",
        make_driver=lambda hardware, _: AlwaysHealthy(hardware),
        want="still reported as healthy",
        patience=QUICK,
    ),
    Case("says it once", "health.refresh", Broken(health=spoilt.says_it_once), "is not repeated", patience=QUICK),
    Case(
        "partitions that never fit",
        "partitions.counters",
        make_driver=lambda hardware, _: TooLargePartitions(hardware),
        want="half-0 can never be allocated: it consumes 90Gi of card/memory, which has 80Gi",
    ),
    Case(
        "resets the card",
        "partitions.neighbours",
        Broken(prepare=spoilt.forgets_shares_after_release, unprepare=spoilt.releases_the_whole_device),
        "after another partition",
    ),
    Case(
        "stuck after it stood still",
        "faults.slow-driver",
        Broken(prepare=spoilt.stuck_while_frozen),
        "in progress",
        patience=QUICK,
    ),
    Case("impatient with the API server", "faults.api-slow", Broken(prepare=spoilt.gives_up_soon), "does not answer"),
    Case("releases by the API server", "faults.api-away", Broken(unprepare=spoilt.needs_the_claim), "a call failed"),
    Case(
        "success without files",
        "faults.disk-full",
        Broken(prepare=spoilt.succeeds_without_files),
        "no CDI file describes",
    ),
    Case(
        "another type",
        "registration.info",
        Broken(get_info=spoilt.changed(set_field("type", "CSIPlugin"))),
        "CSIPlugin",
    ),
    Case(
        "a bad name",
        "registration.info",
        Broken(get_info=spoilt.changed(set_field("name", "Not A Name"))),
        "the name is",
        patience=QUICK,
    ),
    Case(
        "no version that a kubelet supports",
        "registration.info",
        Broken(
            get_info=spoilt.changed(lambda info: info.supported_versions.__setitem__(slice(None), ["v1alpha4.Node"]))
        ),
        "v1alpha4.Node",
    ),
    Case(
        "another answer every time",
        "registration.repeat",
        Broken(get_info=spoilt.changed(lambda info: info.supported_versions.append(f"v{next(NUMBERS)}.X"))),
        "two calls got different answers",
    ),
    Case(
        "refuses a second notification",
        "registration.status",
        Broken(notify=lambda call: call.forward() if call.number == 1 else call.fail("enough")),
        "INTERNAL: enough",
    ),
    Case(
        "garbage",
        "registration.status",
        Broken(notify=lambda call: call.forward() if call.number == 1 else spoilt.garbage(call)),
        "the answer to NotifyRegistrationStatus cannot be decoded",
    ),
    Case("advertises what it does not serve", "registration.versions", Broken(served=(DRA_V1,)), "UNIMPLEMENTED"),
    Case("an error", "prepare.answer", Broken(prepare=spoilt.with_errors("no")), "failed: no"),
    Case("a failing call", "prepare.answer", Broken(prepare=lambda call: call.fail("broken")), "INTERNAL: broken"),
    Case(
        "garbage",
        "prepare.answer",
        Broken(prepare=spoilt.garbage),
        "the answer to NodePrepareResources cannot be decoded",
    ),
    Case(
        "another device",
        "prepare.answer",
        Broken(prepare=spoilt.each_device(set_field("device_name", "gpu-7"))),
        "gpu-7 is not allocated",
    ),
    Case(
        "another pool",
        "prepare.answer",
        Broken(prepare=spoilt.each_device(set_field("pool_name", "x"))),
        "x/gpu-0 is not",
    ),
    Case(
        "another request",
        "prepare.answer",
        Broken(prepare=spoilt.each_device(lambda found: found.request_names.append("extra"))),
        "not for 'extra'",
    ),
    Case(
        "no share",
        "prepare.answer",
        Broken(prepare=spoilt.each_device(lambda found: found.ClearField("share_id"))),
        "share",
    ),
    Case(
        "an invalid CDI name",
        "prepare.answer",
        Broken(prepare=spoilt.each_device(lambda found: found.cdi_device_ids.append("gpu0"))),
        "'gpu0' is not a CDI device name",
    ),
    Case(
        "an entry for another claim",
        "prepare.answer",
        Broken(prepare=spoilt.changed(lambda response: response.claims["stranger"].SetInParent())),
        "was not in the call",
    ),
    Case(
        "no entry",
        "prepare.answer",
        Broken(prepare=spoilt.changed(lambda response: response.claims.clear())),
        "no entry",
    ),
    Case(
        "missing CDI files",
        "prepare.cdi",
        settings={"cdi_dir": Path("/tmp/dralloc-elsewhere")},
        want="no CDI file describes",
    ),
    Case("other names every time", "prepare.repeat", Broken(prepare=spoilt.new_names_every_time), "the answers differ"),
    Case("fails when asked again", "prepare.repeat", Broken(prepare=spoilt.from_second_call_on), "already done"),
    Case("turns others away", "prepare.concurrent", Broken(prepare=spoilt.one_at_a_time), "busy"),
    Case("stuck after a hang-up", "prepare.impatient", Broken(prepare=spoilt.stuck_after_hang_up), "in progress"),
    Case(
        "versions differ",
        "prepare.versions",
        Broken(prepare=spoilt.other_devices_in_the_old_version),
        "calls in both versions",
    ),
    Case("alternatives", "prepare.alternative", Broken(prepare=spoilt.sub_requests_as_allocated), "is a subrequest"),
    Case(
        "the share of another",
        "prepare.shares",
        Broken(prepare=spoilt.each_device(set_field("share_id", "00000000-0000-4000-8000-000000000000"))),
        "the share ID is 00000000",
    ),
    Case(
        "releases more than one share",
        "prepare.shares",
        Broken(prepare=spoilt.forgets_shares_after_release, unprepare=spoilt.releases_the_whole_device),
        "after another share was released",
    ),
    Case(
        "forgets a claim of several",
        "prepare.batch",
        Broken(prepare=spoilt.changed(spoilt.drop_first_entry)),
        "no entry",
    ),
    Case("prepares for others", "prepare.foreign", Broken(prepare=spoilt.answers_for_all_drivers), "is not allocated"),
    Case(
        "prepares what is not there", "prepare.unknown", Broken(prepare=spoilt.says_yes_to_everything), "does not exist"
    ),
    Case("does not look at UIDs", "prepare.replaced", Broken(prepare=spoilt.knows_claims_by_name), "created again"),
    Case("prepares nothing", "prepare.unallocated", Broken(prepare=spoilt.says_yes_to_everything), "not allocated"),
    Case(
        "never recovers from a bad claim",
        "prepare.partial",
        Broken(prepare=spoilt.one_bad_apple_spoils_all_for_ever),
        "neighbour failed",
    ),
    Case("cannot release", "unprepare.answer", Broken(unprepare=spoilt.with_errors("in use")), "in use"),
    Case(
        "garbage",
        "unprepare.answer",
        Broken(unprepare=spoilt.garbage),
        "the answer to NodeUnprepareResources cannot be decoded",
    ),
    Case("releases once", "unprepare.repeat", Broken(unprepare=spoilt.from_second_call_on), "already done"),
    Case("releases what it knows", "unprepare.unknown", Broken(unprepare=spoilt.needs_the_claim), "unknown"),
    Case(
        "releases what it prepared",
        "unprepare.never-prepared",
        Broken(prepare=spoilt.needs_to_have_prepared, unprepare=spoilt.needs_to_have_prepared),
        "not prepared",
    ),
    Case(
        "reads the claim to release it",
        "unprepare.gone",
        Broken(unprepare=spoilt.needs_the_claim),
        "after its deletion",
    ),
    Case("forgets to answer", "unprepare.batch", Broken(unprepare=spoilt.changed(spoilt.drop_first_entry)), "no entry"),
    Case(
        "prepares a claim once in its life",
        "unprepare.again",
        Broken(prepare=spoilt.never_again, unprepare=spoilt.never_again),
        "already used up",
    ),
    Case("sends no health", "health.first", Broken(health=spoilt.nothing), "no message arrived", patience=QUICK),
    Case(
        "invalid times and health values",
        "health.first",
        Broken(health=spoilt.milliseconds),
        "not in seconds since 1970",
    ),
    Case(
        "garbage",
        "health.first",
        Broken(health=spoilt.garbage_stream),
        "the answer to NodeWatchResources cannot be decoded",
    ),
    Case("health of strangers", "health.devices", Broken(health=spoilt.a_stranger), "nobody, which is not published"),
    Case("one stream in its life", "health.reopen", Broken(health=spoilt.one_stream_only), "there is a stream already"),
    Case(
        "forgets what it prepared",
        "restart.prepared",
        Broken(at_start=spoilt.forget_everything, prepare=spoilt.new_names_every_time),
        "before and after a restart",
    ),
    Case("stuck after a restart", "restart.middle", Broken(prepare=spoilt.in_progress_after_restart), "in progress"),
    Case(
        "needs the claim after a restart",
        "restart.gone",
        Broken(at_start=spoilt.forget_everything, unprepare=spoilt.needs_the_claim),
        "after its deletion and a restart",
    ),
    Case(
        "publishes something else after a restart",
        "restart.slices",
        make_driver=lambda hardware, number: GoodDriver(hardware, f"gpu-{number}"),
        want="are not the same after a restart",
        patience=QUICK,
    ),
    Case(
        "does not repair",
        "slices.repair",
        settings={"repair_delay_s": 600.0},
        want="were not republished",
        patience=QUICK,
    ),
]
