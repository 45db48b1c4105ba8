"""`dralloc doctor` and `dralloc forget` as commands: options, wrong input, missing rights, certificates that are not valid."""

from __future__ import annotations

import json
import shlex
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dralloc.answers.doctor.examination import CHECKS
from dralloc.cli.main import app
from dralloc.client.api_calls import PatchType
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.checkpoint import read_checkpoint
from dralloc.primitives.errors import BadRequest, Invalid
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.metrics import exposition, gate_metric, gates_in
from dralloc.server.identity.certificates import ensure_certificates
from dralloc.server.identity.kubeconfig import write_kubeconfig
from tests.support.api_thread import ApiThread, Said, api_thread, refused
from tests.support.faulty_cluster import GONE_UID, checkpoints, claim_document, create, slice_document

FORBIDDEN = refused(403, "Forbidden", 'User "jane" cannot do this')


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def answer(*arguments: str) -> Any:
    return json.loads(run(*arguments, "-o", "json").stdout)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiThread]:
    """A server with nodes, a slice and nothing wrong."""
    with api_thread(tmp_path_factory.mktemp("api")) as made:
        create(made.client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        create(made.client, slice_document("s", "n", "gpu-0"))
        yield made


@pytest.fixture
def cluster(api: ApiThread) -> Iterator[ApiThread]:
    yield api
    api.answers.clear()
    api.requests.clear()


# --- Wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--check", "leak"), "there is no check 'leak'; known: leaked-claim, "),
        (("--older-than", "soon"), "'soon' is not a time such as 90s, 10m, 2h or 30d"),
        (("--older-than", "-5m"), "is not a time"),
        (("--checkpoint", "missing"), "--checkpoint: missing: No such file"),
        (("--checkpoint", "garbage"), "neither the checkpoint of a kubelet"),
        (("--metrics", "http://127.0.0.1:1/metrics"), "is not NAME=URL or NAME=FILE"),
        (("--metrics", "x=missing"), "--metrics: missing: No such file"),
        (("--metrics", "x=garbage"), "has no kubernetes_feature_enabled"),
        (("--metrics", "x=http://127.0.0.1:1/metrics"), "nothing listens at http://127.0.0.1:1"),
        (("-f", "missing"), "missing"),
        (("-f", "garbage"), "no devices, claims, pods or nodes found"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    Path("garbage").write_text("{}\n")
    found = run(*arguments)
    assert found.exit_code == 2, found.output
    assert said in found.output
    assert "Traceback" not in found.output


def test_the_checks_are_listed() -> None:
    listed = run("--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(CHECKS)
    assert [each["id"] for each in answer("--list")["checks"]] == list(CHECKS)


# --- A cluster -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_healthy_cluster_is_quiet_and_only_read(cluster: ApiThread) -> None:
    cluster.requests.clear()
    said = run("--kubeconfig", str(cluster.kubeconfig))
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[-1].startswith(
        f"nothing found: 9 checks (3 not complete) on the cluster {cluster.url}; "
    )
    assert {method for method, _ in cluster.requests} == {"GET"}


@pytest.mark.slow
def test_a_driver_that_has_prepared_nothing_is_checked(cluster: ApiThread, tmp_path: Path) -> None:
    check = ("--kubeconfig", str(cluster.kubeconfig), "--check", "stale-checkpoint")
    assert "not checked  stale-checkpoint: " in run(*check).stdout
    assert run(*check, "--checkpoint", str(tmp_path)).stdout.startswith("nothing found: 1 check on the cluster ")


@pytest.mark.slow
def test_a_check_that_may_not_look_says_so_and_fails(cluster: ApiThread) -> None:
    cluster.answers |= dict.fromkeys(
        (
            "/api/v1/pods",
            "/api/v1/namespaces/default/pods",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "/metrics",
        ),
        FORBIDDEN,
    )
    said = run("--kubeconfig", str(cluster.kubeconfig))
    assert said.exit_code == 1
    assert "not checked  leaked-claim: cannot read pods: " in said.stdout
    assert "not checked  certificate: certificatesigningrequests: " in said.stdout
    assert "not checked  feature-gates: the gates of the API server: /metrics answers 403" in said.stdout
    only = run("--kubeconfig", str(cluster.kubeconfig), "--check", "incomplete-pool")
    assert (only.exit_code, only.stdout) == (
        0,
        f"nothing found: 1 check on the cluster {cluster.url}; a fault that may pass counts after 10m (--older-than)\n",
    )


@pytest.mark.slow
def test_a_request_for_a_certificate_that_waits_is_found(cluster: ApiThread, tmp_path: Path) -> None:
    """On a server that has such requests, as kube-apiserver does; also in a dump, which does not keep their content."""
    metadata = {"name": "undecided", "creationTimestamp": "2026-01-01T00:00:00Z"}
    waiting = {"metadata": metadata, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "request": "jane"}}
    cluster.answers["/apis/certificates.k8s.io/v1/certificatesigningrequests"] = Said(200, {"items": [waiting]})
    where, dump = ("--kubeconfig", str(cluster.kubeconfig)), str(tmp_path / "dump.json")
    made = CliRunner().invoke(app, ["dump", "-o", dump, *where])
    assert made.exit_code == 0, made.output
    assert "jane" not in Path(dump).read_text()
    for source in (where, ("-f", dump)):
        (finding,) = answer(*source, "--check", "certificate")["checks"][0]["findings"]
        assert (finding["subject"], finding["severity"]) == ("certificatesigningrequest undecided", "warning")
        assert finding["commands"] == ["kubectl certificate approve undecided"]


@pytest.mark.slow
def test_no_more_is_read_than_the_check_takes(cluster: ApiThread) -> None:
    cluster.requests.clear()
    run("--kubeconfig", str(cluster.kubeconfig), "--check", "incomplete-pool")
    listed = {path for _, path in cluster.requests if path not in ("/api", "/apis", "/version")}
    assert listed == {"/apis/resource.k8s.io/v1/resourceslices"}


@pytest.mark.slow
def test_the_gates_of_a_further_component_are_compared(cluster: ApiThread, tmp_path: Path) -> None:
    gates = FeatureGates.parse("DRAAdminAccess=false")
    metrics = tmp_path / "metrics"
    metrics.write_text(exposition([gate_metric(gates)]))
    found = answer("--kubeconfig", str(cluster.kubeconfig), "--metrics", f"controllers={metrics}")
    (check,) = [each for each in found["checks"] if each["findings"]]
    (finding,) = check["findings"]
    assert finding["message"] == "on in apiserver, off in controllers"
    assert finding["commands"] == ["dralloc controllers --feature-gates DRAAdminAccess=true"]
    same = run("--kubeconfig", str(cluster.kubeconfig), "--metrics", f"second={cluster.url}/metrics")
    assert "/metrics answers 401" in same.output


def test_gates_are_read_from_metrics_of_any_component() -> None:
    assert gates_in(
        'kubernetes_feature_enabled{name="A",stage=""} 1\nkubernetes_feature_enabled{stage="BETA",name="B"} 0\n'
    ) == {
        "A": True,
        "B": False,
    }
    assert gates_in("# TYPE kubernetes_feature_enabled gauge\nother 1\n") == {}


@pytest.mark.slow
def test_a_command_takes_no_devices_from_a_pod_that_came_in_between(cluster: ApiThread) -> None:
    gone = {"resource": "pods", "name": "gone", "uid": GONE_UID}
    document = claim_document("raced", "gpu-0", reserved=(gone,))
    create(cluster.client, {**document})
    options = ("--kubeconfig", str(cluster.kubeconfig), "--check", "leaked-claim", "--older-than", "0s")
    (finding,) = answer(*options)["checks"][0]["findings"]
    words = shlex.split(finding["commands"][0])
    patch = json.loads(words[words.index("-p") + 1])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "namespace": "default"}}
    uid = create(cluster.client, {**pod, "spec": {"containers": [{"name": "c", "image": "x"}]}})
    late = {"resource": "pods", "name": "late", "uid": uid}
    for users, error in (((gone, late), Invalid), ((late,), (Invalid, BadRequest))):
        made = claim_document("raced", "gpu-0", reserved=users)
        cluster.client.replace_status(made)
        before = cluster.client.get(ResourceClaim, "raced", namespace="default")
        with pytest.raises(error):
            cluster.client.patch(
                ResourceClaim, "raced", patch, namespace="default", type=PatchType.JSON, subresource="status"
            )
        assert cluster.client.get(ResourceClaim, "raced", namespace="default").status == before.status
    cluster.client.delete(ResourceClaim, "raced", namespace="default")


# --- Output of kubectl -----------------------------------------------------------------------------------------------


def test_output_of_kubectl_is_enough_for_the_checks_that_it_has_objects_for(tmp_path: Path) -> None:
    """Without times of writes, the creation counts."""
    old = {"creationTimestamp": "2020-01-01T00:00:00Z", "uid": "u"}
    claim = claim_document("c", "gpu-0")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    half = slice_document("half", "n", "gpu-0", of=2)
    for each in (claim, half):
        each["metadata"] |= old
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [claim, pod, half]}))
    found = answer("-f", str(file))
    by_check = {each["id"]: each for each in found["checks"]}
    assert [each["subject"] for each in by_check["leaked-claim"]["findings"]] == ["resourceclaim default/c"]
    assert [each["subject"] for each in by_check["incomplete-pool"]["findings"]] == ["pool n of driver gpu.example.com"]
    assert by_check["dead-driver"]["unchecked"]
    assert by_check["certificate"]["unchecked"]


# --- Certificates ----------------------------------------------------------------------------------------------------


@contextmanager
def tls_server(directory: Path, now: datetime) -> Iterator[str]:
    """A server whose certificate was made at this time; it answers nothing."""
    files = ensure_certificates(directory, (), now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1)
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("made", "message"),
    [(timedelta(days=-4000), "expired 20"), (timedelta(days=2), "is not valid before 20")],
    ids=["expired", "not valid yet"],
)
def test_a_server_whose_certificate_is_not_valid_gets_a_finding_and_not_a_refusal(
    tmp_path: Path, made: timedelta, message: str
) -> None:
    tls = tmp_path / "tls"
    with tls_server(tls, datetime.now(UTC) + made) as url:
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(kubeconfig, server=url, authority_pem=(tls / "ca.crt").read_bytes(), token="t")
        said = run("--kubeconfig", str(kubeconfig), "-o", "json")
    assert said.exit_code == 1, said.output
    by_check = {each["id"]: each for each in json.loads(said.stdout)["checks"]}
    (finding, *_) = by_check["certificate"]["findings"]
    assert (finding["subject"], finding["severity"]) == ("certificate of the server", "error")
    assert finding["message"].startswith(message)
    assert finding["commands"] == ['mv "${DATA_DIR:-$HOME/.dralloc}/tls" "${DATA_DIR:-$HOME/.dralloc}/tls.$(date +%s)"']
    assert "so that nothing can be asked" in by_check["leaked-claim"]["unchecked"][0]


# --- dralloc forget --------------------------------------------------------------------------------------------------


def forget(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["forget", *arguments])


def test_forget_removes_a_claim_and_nothing_else(tmp_path: Path) -> None:
    file, directory = checkpoints(tmp_path)
    file.chmod(0o600)
    refused = forget("--checkpoint", str(file), "no-such-uid")
    assert refused.exit_code == 2
    assert f"has no claim no-such-uid; it has: {GONE_UID} (default/vanished)" in refused.output
    assert len(read_checkpoint(file)) == 1
    for wrong in (tmp_path / "missing", next(directory.iterdir()), tmp_path):
        said = forget("--checkpoint", str(wrong), GONE_UID)
        assert said.exit_code == 2, said.output
        assert "Traceback" not in said.output
    done = forget("--checkpoint", str(file), GONE_UID)
    assert (done.exit_code, done.output) == (0, "forgot claim default/vanished\n")
    assert read_checkpoint(file) == ()
    assert file.stat().st_mode & 0o777 == 0o600
