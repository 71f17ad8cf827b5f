"""packaging/kubernetes.yaml, as Kubernetes' own client reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from trainerd.config.schema import ClusterConfig
from trainerd.workers.plan import make_plan

PATH = Path(__file__).parents[2] / "packaging" / "kubernetes.yaml"


def test_the_client_knows_each_field_and_misses_none() -> None:
    service, job = yaml.safe_load_all(PATH.read_text())
    api = client.ApiClient()
    for found, kind in ((service, "V1Service"), (job, "V1Job")):
        model = api.deserialize(json.dumps(found), kind, "application/json")  # refuses what lacks a field
        assert api.sanitize_for_serialization(model) == found, "what it does not know, it leaves out"


def test_the_workers_are_the_pods() -> None:
    service, job = yaml.safe_load_all(PATH.read_text())
    template = job["spec"]["template"]["spec"]
    [container] = template["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    plan = make_plan(ClusterConfig(), environment, rank=1)
    assert plan is not None and plan.size == job["spec"]["completions"] == job["spec"]["parallelism"]
    names = [f"{job['metadata']['name']}-{index}.{template['subdomain']}" for index in range(plan.size)]
    assert [each.host for each in plan.workers] == names
    assert template["subdomain"] == service["metadata"]["name"]
    [port] = service["spec"]["ports"]
    assert plan.workers[0].port == port["port"]
    mounts: Mapping[str, Any] = {each["name"]: each for each in container["volumeMounts"]}
    assert {each["name"] for each in template["volumes"]} == set(mounts)
