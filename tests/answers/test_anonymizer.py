"""An anonymized dump gives the answers of the original, renamed, and leaks no name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, inspect
from typer.testing import CliRunner

from dralloc.answers import anonymizer
from dralloc.answers.anonymizer import Anonymizer
from dralloc.answers.cluster_objects import relevant_kinds
from dralloc.answers.dump import ClusterDump
from dralloc.cli.main import app
from dralloc.primitives.quantity import Quantity

Document = dict[str, Any]

# Every name is made of words that begin like this, and nothing else has such words.
SECRET = re.compile(r"zq\w*")
WORDS = ("zq", "zqa", "zqab", "zqa1", "zqb", "zq0", "zq_c", "zqé")
DRIVER = "gpu.example.com"
TIME = "2026-01-01T00:00:00Z"


# --- Names ----------------------------------------------------------------------------------------------------------------

NAMES = st.lists(st.sampled_from([*WORDS, "0", "7", "10", "node", "node1"]), min_size=1, max_size=3).flatmap(
    lambda words: st.sampled_from(["-".join(words), ".".join(words), "/".join(words)])
)


def pods(*names: str) -> list[bytes]:
    return [msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}) for name in names]


@given(st.lists(NAMES, min_size=1, max_size=8, unique=True))
def test_names_stay_different_and_in_order(names: list[str]) -> None:
    renaming = Anonymizer(pods(*names))
    assert [renaming.renamed(name) for name in sorted(names)] == sorted({renaming.renamed(name) for name in names})


def test_names_made_of_other_names_still_match() -> None:
    rename = Anonymizer(pods("train-0", "gpu", "train-0-gpu")).renamed
    assert rename("train-0-gpu") == f"{rename('train-0')}-{rename('gpu')}"


# --- Fields ---------------------------------------------------------------------------------------------------------------

# The string fields that are renamed. A new field of a type is renamed, too, until it is listed in the module.
RENAMED = frozenset(
    [
        "name",
        "parentCompositePodGroupName",
        "templateName",
        "workloadName",
        "namespace",
        "generateName",
        "request",
        "requests",
        "pool",
        "nodeName",
        "claimName",
        "volumeName",
        "persistentVolumeName",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeHandle",
        "nominatedNodeName",
        "message",
        "containerName",
        "requestName",
        "host",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "podGroupName",
        "namespaces",
        "values",
        "reportingInstance",
        "selfLink",
        "image",
        "ips",
        "hardwareAddress",
        "interfaceName",
        "knownFrom",
        "subject",
    ]
)
TREATED = (
    anonymizer._KEPT
    | anonymizer._QUANTITIES
    | anonymizer._LABEL_MAPS
    | anonymizer._LABEL_KEYS
    | anonymizer._DROPPED.keys()
    | {"expression", "note", "why", "string", "strings", "version", "versions", "data"}
)


def string_fields(struct: type[Struct], seen: set[type]) -> set[str]:
    if struct in seen:
        return set()
    seen.add(struct)
    found: set[str] = set()
    for each in inspect.type_info(struct).fields:  # type: ignore[attr-defined]
        waiting = [each.type]
        while waiting:
            match waiting.pop():
                case inspect.StructType(cls=inner):
                    found |= string_fields(inner, seen)
                case inspect.StrType():
                    found.add(each.encode_name)
                case inspect.CustomType(cls=custom) if custom is Quantity:
                    found.add(each.encode_name)
                case inspect.UnionType(types=types):
                    waiting += types
                case inspect.VarTupleType(item_type=item):
                    waiting.append(item)
                case inspect.DictType(value_type=value):
                    waiting.append(value)
    return found


def test_every_string_field_has_a_treatment() -> None:
    seen: set[type] = set()
    fields = set().union(*(string_fields(kind, seen) for kind, _ in relevant_kinds()), string_fields(ClusterDump, seen))
    assert fields - TREATED <= RENAMED, "rename these fields or keep them, and list them"


# --- Answers --------------------------------------------------------------------------------------------------------------


class Cluster:
    """A random cluster whose names are random."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.used: set[str] = set()
        self.spaces = [self.name() for _ in range(2)]
        self.nodes = [self.name() for _ in range(4)]
        self.values = [self.name() for _ in range(2)]
        self.key = self.name()
        self.entry = self.name()
        self.documents: list[Document] = []
        self._fill()

    def name(self) -> str:
        while True:
            words = [self.random.choice(WORDS[:6]) for _ in range(self.random.randint(1, 3))]
            name = "-".join(words)
            if name not in self.used:
                self.used.add(name)
                return name

    def add(self, version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Document:
        metadata: Document = {"name": name, "uid": f"{len(self.documents)}", **more.pop("metadata", {})}
        if namespace:
            metadata["namespace"] = namespace
        document = {"apiVersion": version, "kind": kind, "metadata": metadata, **more}
        self.documents.append(document)
        return document

    def _fill(self) -> None:
        random = self.random
        for space in self.spaces:
            self.add("v1", "Namespace", space)
        for node in self.nodes:
            labels = {"kubernetes.io/hostname": node, self.key: random.choice(self.values), "zq/count": "4"}
            status = {"allocatable": {"cpu": random.choice(("2", "4")), "pods": "10"}}
            taints = [{"key": self.key, "value": self.values[0], "effect": "NoSchedule"}] * (random.random() < 0.3)
            self.add("v1", "Node", node, metadata={"labels": labels}, spec={"taints": taints}, status=status)
            self._slice(node)
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}" // by {self.name()}'}}
        self.add("resource.k8s.io/v1", "DeviceClass", "gpu", spec={"selectors": [selector]})
        if random.random() < 0.5:
            rule = {
                "deviceSelector": {"pool": random.choice(self.nodes)},
                "taint": {"key": self.key, "effect": "NoSchedule"},
            }
            self.add("resource.k8s.io/v1", "DeviceTaintRule", self.name(), spec=rule)
        templates = [self.name(), self.name()]
        for space in self.spaces:
            for template in templates:
                self.add("resource.k8s.io/v1", "ResourceClaimTemplate", template, space, spec={"spec": self._wish()})
            hard = {"count/resourceclaims.resource.k8s.io": str(random.randint(1, 9))}
            self.add("v1", "ResourceQuota", self.name(), space, spec={"hard": hard}, status={"hard": hard})
            for _ in range(5):
                self._pod(space, templates)

    def _slice(self, node: str) -> None:
        random = self.random
        pool = node if random.random() < 0.5 else self.name()
        devices = [
            {
                "name": f"gpu-{number}",
                "attributes": {
                    "host": {"string": node},
                    "model": {"string": random.choice(("a", "b"))},
                    "numa": {"int": number % 2},
                },
                "capacity": {"memory": {"value": "80Gi"}},
                "allowMultipleAllocations": random.random() < 0.5,
                "taints": [{"key": self.key, "value": self.values[1], "effect": "NoSchedule"}]
                * (random.random() < 0.2),
            }
            for number in range(2)
        ]
        if random.random() < 0.3:
            terms = [
                {"matchExpressions": [{"key": self.key, "operator": "In", "values": [random.choice(self.values)]}]}
            ]
            where: Document = {"nodeSelector": {"nodeSelectorTerms": terms}}
        else:
            where = {"nodeName": node}
        spec = {"driver": DRIVER, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}, "devices": devices}
        self.add("resource.k8s.io/v1", "ResourceSlice", self.name(), spec=spec | where)

    def _wish(self) -> Document:
        random = self.random
        host = f'device.attributes["{DRIVER}"].host'
        expression = random.choice(
            (
                f'{host} == "{random.choice(self.nodes)}"',
                f'{host} in ["{self.nodes[0]}", "{self.nodes[1]}"]',
                f'{host} < "{self.nodes[2]}"',
                f'device.attributes["{DRIVER}"].model == "a"',
                f'device.attributes["{DRIVER}"].model == "c"',
                f'device.attributes["{DRIVER}"].missing == "a"',
            )
        )
        wanted: Document = {"deviceClassName": "gpu", "count": random.randint(1, 2)}
        if random.random() < 0.5:
            wanted["selectors"] = [{"cel": {"expression": expression}}]
        if random.random() < 0.3:
            wanted["capacity"] = {"requests": {"memory": random.choice(("20Gi", "90Gi"))}}
        if random.random() < 0.3:
            wanted["tolerations"] = [{"key": self.key, "operator": "Exists"}]
        request, other = self.entry, self.name()
        devices: Document = {"requests": [{"name": request, "exactly": wanted}]}
        if random.random() < 0.3:
            alternatives = [{**wanted, "name": self.values[0], "count": 3}, {**wanted, "name": self.values[1]}]
            devices["requests"].append({"name": other, "firstAvailable": alternatives})
            devices["constraints"] = [{"requests": [request, other], "matchAttribute": f"{DRIVER}/host"}]
        return {"devices": devices}

    def _pod(self, space: str, templates: list[str]) -> None:
        random, name = self.random, self.name()
        spec: Document = {
            "schedulerName": "dralloc",
            "containers": [
                {
                    "name": self.entry,
                    "resources": {"requests": {"cpu": random.choice(("1", "2"))}, "claims": [{"name": self.entry}]},
                }
            ],
        }
        if random.random() < 0.5:
            spec["resourceClaims"] = [{"name": self.entry, "resourceClaimTemplateName": random.choice(templates)}]
        else:
            claim = self.name()
            self.add("resource.k8s.io/v1", "ResourceClaim", claim, space, spec=self._wish())
            spec["resourceClaims"] = [{"name": self.entry, "resourceClaimName": claim}]
        if random.random() < 0.2:
            spec["nodeSelector"] = {self.key: random.choice(self.values)}
        if random.random() < 0.2:
            fields = [{"key": "metadata.name", "operator": "In", "values": [random.choice(self.nodes)]}]
            counts = [{"key": "zq/count", "operator": "Gt", "values": ["3"]}]
            terms = {"nodeSelectorTerms": [{"matchFields": fields, "matchExpressions": counts}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        if random.random() < 0.3:
            spec["tolerations"] = [{"key": self.key, "operator": "Exists"}]
        if random.random() < 0.1:
            spec["schedulingGates"] = [{"name": self.name()}]
        if random.random() < 0.2:
            spec["nodeName"] = random.choice(self.nodes)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"no {self.name()}",
        }
        metadata = {"labels": {self.key: self.values[0]}, "creationTimestamp": TIME}
        self.add("v1", "Pod", name, space, metadata=metadata, spec=spec, status={"conditions": [condition]})

    def dump(self) -> list[bytes]:
        kinds = [{"kind": kind.kind, "count": 0} for _, kind in relevant_kinds()]
        header = {"apiVersion": "dralloc.io/v1alpha1", "kind": "ClusterDump", "time": TIME, "kinds": kinds}
        return [msgspec.json.encode(each) for each in ({**header, "namespace": self.spaces[0]}, *self.documents)]


def ask(file: Path, bodies: list[bytes], *question: str) -> str:
    file.write_bytes(b'{"apiVersion": "v1", "kind": "List", "items": [' + b",".join(bodies) + b"]}")
    told = CliRunner().invoke(app, [*question, "-f", str(file)])
    assert told.exit_code in (0, 1), told.output
    # Columns are as wide as names are; the IDs of shares are made of names.
    plain = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", f"{told.stdout}{told.stderr}{told.exit_code}")
    return re.sub(r"[ ─]+", " ", plain)


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_the_same_but_for_the_names(tmp_path: Path, seed: int) -> None:
    cluster = Cluster(seed)
    original = cluster.dump()
    anonymizer = Anonymizer(original)
    renamed = list(anonymizer.documents())
    assert not anonymizer.notes
    assert not SECRET.search(b"".join(renamed).decode())
    file = tmp_path / "dump.json"

    def rename(found: re.Match[str]) -> str:
        return anonymizer.renamed(found[0])

    pod_names = [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in cluster.documents
        if each["kind"] == "Pod"
    ]
    questions = [
        ("allocate", "-o", "wide"),
        ("allocate", "-o", "yaml"),
        ("plan", "--shape", "gpu=2", "-o", "wide"),
        ("top", "devices", "-o", "wide"),
        ("top", "devices", "-o", "json"),
        ("drain", cluster.nodes[0], "--dry-run"),
        ("drain", "--device", f"{DRIVER}/{cluster.nodes[1]}/*", "--dry-run", "-o", "json"),
        *(("explain", "pod", name) for name in pod_names[:6]),
        ("explain", "pod", pod_names[0], "-o", "json"),
    ]
    for question in questions:
        expected = ask(file, original, *question)
        expected = SECRET.sub(rename, expected)
        told = ask(file, renamed, *(SECRET.sub(rename, each) for each in question))
        assert told == expected, question


def test_a_selector_that_looks_into_a_name_keeps_it() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-7"}}
    device = {"name": "gpu-0", "attributes": {"host": {"string": "gpu-7"}}}
    spec = {"driver": DRIVER, "pool": {"name": "p"}, "devices": [device]}
    published = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    expression = f'device.attributes["{DRIVER}"].host.startsWith("gpu-")'
    offered: Document = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}}
    offered["spec"] = {"selectors": [{"cel": {"expression": expression}}]}
    anonymizer = Anonymizer([msgspec.json.encode(each) for each in (node, published, offered)])
    told = [json.loads(body) for body in anonymizer.documents()]
    assert told[0]["metadata"]["name"] != "gpu-7"
    assert told[1]["spec"]["devices"] == [device]
    assert told[2]["spec"] == offered["spec"]
    assert anonymizer.notes == ["attribute host has 1 names, which stay: a selector looks into them"]


def test_parameters_comments_and_the_words_of_a_server_are_removed() -> None:
    kind = {"kind": "ResourceQuota", "missing": True, "note": 'cannot read resourcequotas: User "jane" cannot list'}
    header = {"apiVersion": "dralloc.io/v1alpha1", "kind": "ClusterDump", "time": TIME, "kinds": [kind]}
    config = [{"opaque": {"driver": DRIVER, "parameters": {"owner": "jane"}}}]
    selectors = [{"cel": {"expression": "true // jane wants it"}}]
    offered = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "c", "labels": {"by": "jane"}},
    }
    bodies = [
        msgspec.json.encode(each) for each in (header, {**offered, "spec": {"config": config, "selectors": selectors}})
    ]
    told = b"".join(Anonymizer(bodies).documents())
    assert b"jane" not in told
    assert b"cannot read resourcequotas" in told
