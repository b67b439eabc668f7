# SPDX-License-Identifier: Apache-2.0
"""ElasticTrainingJob on a real API server: what its schema takes and refuses, columns, scale, and
that it takes what the controller writes of a training: pods, service, status."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from daemon import eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build"))
CRD = ROOT / "dist/kubernetes/crd.yaml"
API = "/apis/threadtide.io/v1alpha1"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def crd(plane):
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", CRD)
    eventually(lambda: plane.api("GET", f"{API}/elastictrainingjobs")[0] == 200)
    return plane


def merged(base, more):
    if not isinstance(base, dict) or not isinstance(more, dict):
        return more
    return {**base, **{key: merged(base.get(key), value) for key, value in more.items()}}


def training(name="train", **spec):
    return {"apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob",
            "metadata": {"name": name}, "spec": merged({
                "image": "local/image", "command": ["python", "train.py"],
                "workers": {"max": 4, "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            }, spec)}


@pytest.fixture
def etjs(namespace):
    return f"{API}/namespaces/{namespace}/elastictrainingjobs"


def test_defaults_are_filled_in(crd, etjs):
    spec = crd.must("POST", etjs, training())["spec"]
    assert (spec["mode"], spec["slots"], spec["suspend"]) == ("sync", 8, False)
    assert (spec["workers"]["replicas"], spec["workers"]["min"], spec["ps"]["min"]) == (0, 1, 1)
    assert (spec["policy"], spec["backoffLimit"]) == ("", 6)


@pytest.mark.parametrize("spec, said", [
    ({"image": None}, "spec.image"),
    ({"command": []}, "spec.command"),
    ({"mode": "both"}, "spec.mode"),
    ({"slots": 0}, "spec.slots"),
    ({"workers": {"min": 5}}, "min must not be above max"),
    ({"workers": {"replicas": 5}}, "replicas must be 0"),
    ({"workers": {"replicas": -1}}, "non-negative"),
    ({"workers": {"max": 100000}}, "spec.workers.max"),
    ({"workers": {"cpu": {"min": "2", "max": 1}}}, "min must not be above max"),
    ({"workers": {"cpu": {"min": "1", "start": "2"}}}, "min and max are given together"),
    ({"workers": {"cpu": {"start": "many"}}}, "spec.workers.cpu.start"),
    ({"workers": {"resources": {"requests": {"cpu": "much"}}}}, "spec.workers.resources.requests"),
    ({"ps": {"min": 3, "max": 2}}, "min must not be above max"),
    ({"env": [{"name": "TIDE_ROLE", "value": "x"}]}, "are the controller's"),
    ({"backoffLimit": -1}, "spec.backoffLimit"),
    ({"topology": {"mode": "require"}}, "spec.topology.key"),
    ({"topology": {"key": "zone", "mode": "near"}}, "spec.topology.mode"),
    ({"gpuNodes": "always"}, "spec.gpuNodes"),
    ({"ps": {"template": {"metadata": {"annotations": {"threadtide.io/leave": ""}}}}}, "the controller's"),
    ({"workers": {"template": {"metadata": {"labels": {"threadtide.io/x": ""}}}}}, "the controller's"),
])
def test_what_cannot_be_is_refused(crd, etjs, spec, said):
    status, answer = crd.api("POST", etjs, training(**spec))
    assert status == 422 and said in answer["message"], answer


@pytest.mark.parametrize("name", ["9lives", "a.b", "x" * 49])
def test_names_become_services_and_labels(crd, etjs, name):
    status, answer = crd.api("POST", etjs, training(name))
    assert status == 422 and "metadata.name" in answer["message"], answer


def test_what_the_pods_agree_on_stays_once_they_run(crd, etjs):
    crd.must("POST", etjs, training(args=["--fast"]))
    crd.must("PATCH", f"{etjs}/train", {"spec": {"mode": "async"}})
    crd.must("PATCH", f"{etjs}/train/status", {"status": {"phase": "Running"}})
    for spec in ({"mode": "sync"}, {"slots": 4}, {"image": "other"}, {"command": ["x"]},
                 {"args": ["--slow"]}, {"args": None}):
        status, answer = crd.api("PATCH", f"{etjs}/train", {"spec": spec})
        assert status == 422 and "once the training has started" in answer["message"], (spec, answer)
    crd.must("PATCH", f"{etjs}/train", {"spec": {"suspend": True, "workers": {"max": 9}}})


def test_scale_pins_and_gives_back(crd, etjs, namespace):
    crd.must("POST", etjs, training())
    crd.must("PATCH", f"{etjs}/train/status", {"status": {
        "workers": {"actual": 2}, "selector": "threadtide.io/job=train"}})
    scale = crd.must("GET", f"{etjs}/train/scale")
    assert scale["spec"].get("replicas", 0) == 0
    assert scale["status"] == {"replicas": 2, "selector": "threadtide.io/job=train"}
    crd.kubectl("scale", "etj/train", "--replicas=3", "-n", namespace)
    assert crd.must("GET", f"{etjs}/train")["spec"]["workers"]["replicas"] == 3
    code, _, said = crd.kubectl("scale", "etj/train", "--replicas=9", "-n", namespace, check=False)
    assert code and "replicas must be 0" in said
    crd.kubectl("scale", "etj/train", "--replicas=0", "-n", namespace)
    assert crd.must("GET", f"{etjs}/train")["spec"]["workers"]["replicas"] == 0


def written(etj):
    """The objects that the controller would write for it."""
    done = subprocess.run([BUILD / "tests/unit/kube_print"], input=json.dumps(etj), text=True,
                          capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def apply(plane, path, body):
    return plane.must("PATCH", f"{path}?fieldManager=tide-kube&force=true", json.dumps(body), APPLY)


def test_the_api_server_takes_what_the_controller_writes(crd, etjs, namespace):
    etj = crd.must("POST", etjs, training(
        checkpoint={"path": "/data"}, env=[{"name": "A", "value": "1"}],
        ps={"min": 2, "max": 2, "resources": {"requests": {"cpu": "250m"}}},
        workers={"min": 2, "cpu": {"min": "250m", "max": 2},
                 "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                 "template": {"spec": {"tolerations": [{"operator": "Exists"}], "containers": [
                     {"name": "tide", "workingDir": "/data"}, {"name": "side", "image": "x"}]}}}))
    etj = crd.must("GET", f"{etjs}/train")
    out = written(etj)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    assert sorted(pod["metadata"]["name"] for pod in out["pods"]) == [
        "train-chief", "train-ps-0", "train-ps-1", "train-worker-0", "train-worker-1"]
    for pod in out["pods"]:
        apply(crd, f"{pods}/{pod['metadata']['name']}", pod)
    apply(crd, f"/api/v1/namespaces/{namespace}/services/train", out["service"])
    apply(crd, f"/api/v1/namespaces/{namespace}/configmaps/train-ca", out["config"])
    apply(crd, f"{etjs}/train", out["finalizer"])
    assert crd.must("GET", f"{etjs}/train")["metadata"]["finalizers"] == ["threadtide.io/drain"]
    status, answer = crd.api("PATCH", f"{etjs}/train/status?fieldManager=tide-kube&force=true",
                             json.dumps(out["status"]), APPLY)
    assert (status, answer["reason"]) == (409, "Conflict")  # it was decided before the finalizer came
    out = written(crd.must("GET", f"{etjs}/train"))
    apply(crd, f"{etjs}/train/status", out["status"])

    status = crd.must("GET", f"{etjs}/train")["status"]
    assert status == out["status"]["status"]  # nothing was pruned: the schema knows every field
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Accepted": "True", "Ready": "False", "Progressing": "True", "Degraded": "False",
        "Complete": "False", "Suspended": "False"}
    head, line = crd.kubectl("get", "etj", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "MODE", "PS", "WORKERS", "STEP", "LOSS", "EFFICIENCY", "PHASE", "AGE"]
    assert line.split()[:4] == ["train", "sync", "2", "2"] and "Starting" in line

    worker = crd.must("GET", f"{pods}/train-worker-0")
    chief = crd.must("GET", f"{pods}/train-chief")
    assert worker["metadata"]["ownerReferences"][0]["uid"] == etj["metadata"]["uid"]
    assert worker["spec"]["automountServiceAccountToken"] is False
    sources = [source for volume in chief["spec"]["volumes"] if volume["name"] == "threadtide"
               for source in volume["projected"]["sources"]]
    assert sources[0]["serviceAccountToken"]["audience"] == "threadtide"


@pytest.mark.parametrize("name", ["job.yaml", "queued-training.yaml", "trainjob.yaml"])
def test_the_api_server_takes_the_examples(crd, namespace, name):
    """TrainJob's definition is Kubeflow Trainer's: `make check-kueue` fetches it and sets TIDE_TRAINER."""
    trainer = os.environ.get("TIDE_TRAINER")
    if name == "trainjob.yaml":
        if not trainer:
            pytest.skip("make check-kueue has Kubeflow Trainer's definitions (TIDE_TRAINER)")
        crd.kubectl("apply", "--server-side", *(w for p in sorted(pathlib.Path(trainer).glob("trainer.*.yaml"))
                                                for w in ("-f", str(p))))
        crd.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    crd.kubectl("apply", "-n", namespace, "--dry-run=server", "--validate=strict", "-f",
                str(ROOT / "examples/kubernetes" / name))


def test_the_api_server_takes_what_a_newcomer_types(crd, namespace, tmp_path):
    """The manifests of docs/kubernetes.md: the first training with its claim, and the network policy."""
    manifests = re.findall(r"(?ms)^```yaml\n(.*?)^```", (ROOT / "docs/kubernetes.md").read_text())
    assert ["ElasticTrainingJob" in manifest for manifest in manifests] == [True, False]
    for manifest in manifests:
        file = tmp_path / "manifest.yaml"
        file.write_text(manifest)
        crd.kubectl("apply", "-n", namespace, "--dry-run=server", "--validate=strict", "-f", str(file))
