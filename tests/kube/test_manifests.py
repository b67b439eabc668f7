# SPDX-License-Identifier: Apache-2.0
"""The manifests that people install: the plain ones and the Helm chart, on a real API server. TIDE_MANIFESTS names
another folder that has both, as the package tide-kube does (tests/packages/test_chart.py)."""
import base64
import json
import os
import pathlib
import re
import subprocess

import pytest

from daemon import GUARD_S, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = pathlib.Path(os.environ.get("TIDE_MANIFESTS") or ROOT / "dist")
MANIFESTS, CHART = DIST / "kubernetes", DIST / "helm/threadtide"
DEFINITION = "customresourcedefinition.apiextensions.k8s.io/elastictrainingjobs.threadtide.io"
ACCOUNT = "system:serviceaccount:threadtide:tide-kube"


@pytest.fixture(scope="module")
def installed(plane):
    """As docs/kubernetes.md says, and first without a change."""
    for name in ("crd.yaml", "namespace.yaml"):
        plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(MANIFESTS / name))
    eventually(lambda: plane.api("GET", "/apis/threadtide.io/v1alpha1/elastictrainingjobs")[0] == 200)
    files = [str(path) for path in MANIFESTS.iterdir() if path.name not in ("power.yaml", "inject.yaml", "pods.yaml")]  # test_power.py, …
    for dry in (("--dry-run=server",), ()):
        plane.kubectl("apply", "--server-side", "--validate=strict", *dry, "-f", ",".join(files))
    yield plane
    for name in ("tide-kube.yaml", "admission.yaml", "rbac.yaml", "namespace.yaml"):
        plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", str(MANIFESTS / name))
    eventually(lambda: plane.api("GET", "/api/v1/namespaces/threadtide")[0] == 404)


def test_the_plain_manifests_are_what_the_chart_makes(helm, tmp_path):
    done = subprocess.run([ROOT / "scripts/manifests.sh", tmp_path], capture_output=True, text=True,
                          timeout=2 * GUARD_S, env={**os.environ, "HELM": str(helm.program)})
    assert done.returncode == 0, done.stderr
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(made) == {path.name for path in MANIFESTS.iterdir()} - {"crd.yaml"}
    for name, text in made.items():
        assert text == (MANIFESTS / name).read_text(), f"{name}: run scripts/manifests.sh"


def test_the_daemonset_for_pods_is_admitted(plane):
    """Its pods on a node are shared_node.py's matter."""
    plane.kubectl("apply", "--server-side", "--validate=strict", "-f", str(MANIFESTS / "pods.yaml"))
    found = plane.must("GET", "/apis/apps/v1/namespaces/threadtide-pods/daemonsets/tide-pods")
    kept = {c["name"]: c["securityContext"]["capabilities"].get("add", []) for c in found["spec"]["template"]["spec"]["containers"]}
    assert kept == {"tided": ["KILL", "SYS_PTRACE"], "tide-pods": []}
    plane.kubectl("delete", "--wait=false", "-f", str(MANIFESTS / "pods.yaml"))


def test_two_replicas_are_admitted_where_pods_may_do_least(installed):
    """Pod Security's `restricted` is enforced in the namespace: pods with more rights are not made."""
    def pods():
        return installed.must("GET", "/api/v1/namespaces/threadtide/pods")["items"]
    eventually(lambda: len(pods()) == 2)
    container = pods()[0]["spec"]["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {"livenessProbe", "readinessProbe"} <= container.keys()
    budget = "/apis/policy/v1/namespaces/threadtide/poddisruptionbudgets/tide-kube"
    eventually(lambda: installed.must("GET", budget)["status"].get("expectedPods") == 2)


def may(plane, verb, what, namespace="default", name=""):
    """@what: RESOURCE[.GROUP][/SUBRESOURCE]"""
    kind, _, part = what.partition("/")
    kind, _, group = kind.partition(".")
    return plane.must("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {
        "user": ACCOUNT, "groups": ["system:serviceaccounts", "system:authenticated"],
        "resourceAttributes": {"namespace": namespace, "verb": verb, "resource": kind, "group": group,
                               "subresource": part, "name": name}}})["status"]["allowed"]


def test_the_account_may_do_its_work_and_nothing_besides(installed):
    training, lease = "elastictrainingjobs.threadtide.io", "leases.coordination.k8s.io"
    for verb, what in (("watch", "nodes"), ("list", "poddisruptionbudgets.policy"), ("create", "pods"),
                       ("delete", "pods"), ("patch", "pods/resize"), ("watch", "resourcequotas"),
                       ("patch", "services"), ("patch", training), ("patch", f"{training}/status"),
                       ("create", "events.events.k8s.io"),
                       ("create", "tokenreviews.authentication.k8s.io")):
        assert may(installed, verb, what), f"{verb} {what}"
    assert may(installed, "patch", lease, "threadtide", "tide-kube")
    assert may(installed, "patch", "secrets", "threadtide", "tide-kube-ca")
    for verb, what in (("list", "secrets"), ("create", "pods/exec"), ("get", "pods/log"),
                       ("delete", training), ("patch", "nodes"), ("delete", "services"),
                       ("create", "roles.rbac.authorization.k8s.io"), ("create", "serviceaccounts/token"),
                       ("impersonate", "users"), ("create", lease)):
        assert not may(installed, verb, what), f"{verb} {what}"
    for verb, what in (("create", "pods"), ("patch", "pods"), ("delete", "pods"), ("patch", "pods/resize"),
                       ("create", "services"), ("patch", "configmaps")):
        assert not may(installed, verb, what, "kube-system"), f"{verb} {what} in a namespace that was not given"
    assert not may(installed, "get", "secrets", "default", "tide-kube-ca")
    assert not may(installed, "get", "secrets", "threadtide", "another")
    assert not may(installed, "patch", lease, "threadtide", "another")


@pytest.fixture
def account(installed):
    """kubectl as tide-kube; (whether it went well, what it said)."""
    config = installed.kubeconfig("tide-kube", token=installed.token("tide-kube", "threadtide"))

    def run(*words, **more):
        code, _, said = installed.kubectl(*words, check=False, config=config, **more)
        return code == 0, said
    return run


@pytest.fixture
def owner(installed):
    path = "/apis/threadtide.io/v1alpha1/namespaces/default/elastictrainingjobs"
    made = installed.must("POST", path, {
        "apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob", "metadata": {"name": "owner"},
        "spec": {"image": "none", "command": ["true"], "suspend": True, "workers": {"max": 1}}})
    yield {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": "owner",
           "uid": made["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    installed.must("DELETE", f"{path}/owner")


def pod_of(owner, name, container=None, **spec):
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": name, "namespace": "default", "ownerReferences": [owner] if owner else []},
        "spec": {"containers": [{"name": "tide", "image": "local/none", **(container or {})}], **spec}})


def test_what_the_account_makes_is_a_trainings_and_has_no_more_rights_than_that(installed, account, owner):
    def refused(said, *words, **more):
        heard = []

        def is_refused():
            heard.append(account(*words, **more))
            return said in heard[-1][1]
        try:
            eventually(is_refused)
        except AssertionError:
            raise AssertionError(f"not '{said}' but {heard[-1]}") from None
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    installed.must("POST", accounts, {"metadata": {"name": "admin"}})
    for name, said, spec in (
            ("net", "do not share the node's network", {"hostNetwork": True}),
            ("pid", "do not share the node's network", {"hostPID": True}),
            ("path", "do not mount folders", {"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}),
            ("root", "are not privileged", {"container": {"securityContext": {"privileged": True}}}),
            ("caps", "are not privileged", {"container": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}}),
            ("init", "are not privileged", {"initContainers": [
                {"name": "i", "image": "local/none", "securityContext": {"privileged": True}}]}),
            ("who", "one of these service accounts", {"serviceAccountName": "admin"})):
        refused(said, "create", "-f", "-", input=pod_of(owner, name, **spec))
    refused("belongs to an ElasticTrainingJob", "create", "-f", "-", input=pod_of(None, "nobodys"))
    good, said = account("create", "-f", "-", input=pod_of(owner, "good"))
    assert good, said
    installed.kubectl("create", "-f", "-", input=pod_of(None, "guest"))
    for words in (("delete", "pod", "guest"), ("annotate", "pod", "guest", "a=b")):
        refused("belongs to an ElasticTrainingJob", *words)
    assert account("annotate", "pod", "good", "a=b")[0]
    assert account("delete", "pod", "good", "--wait=false")[0]
    assert not account("create", "-f", "-", input=pod_of(owner, "far").replace('"default"', '"kube-system"'))[0]
    installed.kubectl("delete", "pod", "guest", "--wait=false")
    installed.must("DELETE", f"{accounts}/admin")


def webhooks_authority(plane):
    """Checks that the API server trusts the authority in the injector's Secret; returns its data."""
    hooks = plane.must("GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tide-inject")["webhooks"]
    secret = plane.must("GET", "/api/v1/namespaces/threadtide/secrets/tide-inject-ca")
    assert {h["clientConfig"]["caBundle"] for h in hooks} == {secret["data"]["ca.crt"]} and secret["data"]["ca.key"]
    path = base64.b64decode(secret["data"]["path"]).decode()
    assert len(path) >= 32 and {h["clientConfig"]["service"]["path"] for h in hooks} == {f"/pods/{path}"}
    return secret["data"]


def of_helm(plane):
    """Names of objects that Helm has made, and of what was made from these; and Helm's own notes of releases."""
    kinds = ",".join(kind for kind in plane.kubectl("api-resources", "--verbs=list", "-o", "name").split() if not kind.startswith("events"))
    return {name for mark in ("app.kubernetes.io/managed-by=Helm", "owner=helm")
            for name in plane.kubectl("get", kinds, "--all-namespaces", "-l", mark, "-o", "name").split()}


def test_the_chart_installs_upgrades_and_leaves_the_trainings_when_it_goes(helm, installed, namespace):
    """Into a cluster that has the plain manifests, whose place it takes."""
    plane = installed
    release = ("threadtide", str(CHART), "--namespace", "threadtide")
    helm("install", *release, "--take-ownership", "--set", "namespace.create=true,inject.enabled=true",
         "--set", "pods.enabled=true,pods.namespace=other-pods")
    assert {"daemonset.apps/tide-pods", "deployment.apps/tide-inject", "secret/sh.helm.release.v1.threadtide.v1"} <= of_helm(plane)
    trusted = webhooks_authority(plane)
    path = f"/apis/threadtide.io/v1alpha1/namespaces/{namespace}/elastictrainingjobs"
    plane.must("POST", path, {
        "apiVersion": "threadtide.io/v1alpha1", "kind": "ElasticTrainingJob", "metadata": {"name": "stays"},
        "spec": {"image": "none", "command": ["true"], "workers": {"max": 3}}})

    assert not may(plane, "create", "pods", "kube-system")
    daemons = "/apis/apps/v1/namespaces/threadtide-power/daemonsets/tide-power"
    assert plane.api("GET", daemons)[0] == 404  # power is off unless asked for
    helm("upgrade", *release, "--set", "namespace.create=true", "--set", "clusterWide=true", "--set",
         "power.enabled=true,power.namespace=other-power,power.limit=true,power.broker=hub:8883", "--set", "inject.enabled=true")
    assert webhooks_authority(plane) == trusted  # an upgrade makes no other one
    eventually(lambda: may(plane, "create", "pods", "kube-system"))
    tided, _ = plane.must("GET", daemons.replace("threadtide-power", "other-power"))["spec"]["template"]["spec"]["containers"]
    assert {m["name"]: m.get("readOnly", False) for m in tided["volumeMounts"]}["devices"] is False
    helm("upgrade", *release, "--set", "namespace.create=true", "--set", "replicas=1",
         "--set", "tlsSecret=ours", "--set", f"watchNamespace={namespace}",
         "--set", "networkPolicy.enabled=false")
    deployment = plane.must("GET", "/apis/apps/v1/namespaces/threadtide/deployments/tide-kube")["spec"]
    args = deployment["template"]["spec"]["containers"][0]["args"]
    assert deployment["replicas"] == 1 and f"--namespace={namespace}" in args
    eventually(lambda: may(plane, "create", "pods", namespace) and not may(plane, "create", "pods"))
    assert may(plane, "watch", "pods") and not may(plane, "patch", "elastictrainingjobs.threadtide.io")
    for gone in ("/apis/policy/v1/namespaces/threadtide/poddisruptionbudgets/tide-kube",
                 "/api/v1/namespaces/threadtide/secrets/tide-kube-ca",
                 "/apis/networking.k8s.io/v1/namespaces/threadtide/networkpolicies/tide-kube",
                 "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tide-inject"):
        assert plane.api("GET", gone)[0] == 404

    helm("upgrade", *release, "--set", "namespace.create=false", "--reset-values", "--dry-run=server")
    helm("uninstall", "threadtide", "--namespace", "threadtide")
    eventually(lambda: of_helm(plane) == {DEFINITION}, 2 * GUARD_S, 0.5)  # pods and namespaces go later
    assert plane.api("GET", f"{path}/stays")[0] == 200


def test_listed_nodes_enrol_by_jobs_that_name_no_other_nodes_token(helm, plane, namespace, tmp_path):
    def made(nodes):
        text = helm("template", "t", str(CHART), "--kube-version", "1.34.0", "--set", f"power.namespace={namespace},"
                    f"power.enabled=true,power.broker=hub:8883,power.enrol.hub=https://hub,power.enrol.nodes={nodes}")
        path = tmp_path / "made.yaml"
        path.write_text("\n---\n".join(part for part in text.split("\n---\n") if re.search(r"(?m)^kind: (Job|DaemonSet)$", part)))
        said = plane.kubectl("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", str(path))
        return json.loads("[" + said.replace("\n}\n{", "\n},\n{") + "]")

    def secrets(part):
        return [v["secret"]["secretName"] for v in part["spec"]["template"]["spec"]["volumes"] if "secret" in v]

    daemons, *jobs = made("{n1.example.org,n2}")
    assert secrets(daemons) == [] and "tokens" not in json.dumps(daemons["spec"]["template"]["spec"]["volumes"])
    assert {job["spec"]["template"]["spec"]["nodeName"]: secrets(job) for job in jobs} == {
        node: [f"tide-power-tokens.{node}"] for node in ("n1.example.org", "n2")}
    assert all(job["spec"]["backoffLimit"] > 100_000 for job in jobs)  # they wait for tokens, for days if need be
    daemons, = made("null")
    assert secrets(daemons) == ["tide-power-tokens"]


@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")
def test_a_pod_gets_the_key_that_root_enrolled_by_hand(tmp_path):
    """The container `folder` with the rights that it has; also once the folder is the pod's."""
    text = (MANIFESTS / "power.yaml").read_text()
    text = text[text.index("- name: folder"):text.index("containers:", text.index("- name: folder"))]
    command = re.search(r"command: \[(.*)\]", text)[1].replace('"', "").split(", ")
    rights = ",".join(f"+{right.strip().lower()}" for right in re.search(r"add: \[(.*)\]", text)[1].split(","))
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for name in ("unit.key", "later.key"):
        (state / name).write_text("secret")
        (state / name).chmod(0o600)
        subprocess.run(["setpriv", "--no-new-privs", f"--bounding-set=-all,{rights}", f"--inh-caps=-all,{rights}", *command[:-1], state],
                       check=True)
        assert {(file.stat().st_uid, file.stat().st_gid) for file in (state, *state.iterdir())} == {(65532, 65532)}


def test_a_job_that_enrols_has_another_name_whenever_its_pod_is_another_one(helm):
    def made(*values):
        text = helm("template", "t", str(CHART), "--kube-version", "1.34.0", "--set", ",".join((
            "power.enabled=true", "power.broker=hub:8883", "power.enrol.hub=https://hub", "power.enrol.nodes={n1}", *values)))
        job = next(part for part in text.split("\n---\n") if re.search(r"(?m)^kind: Job$", part))
        return re.search(r"(?m)^  name: (\S+)$", job)[1], job[job.index("\nspec:"):]

    name, pod = made()
    assert made() == (name, pod) and made("power.cap=100 W") == (name, pod)
    for value in ("power.enrol.hub=https://other", "power.enrol.secret=other", "power.enrol.nodes={n2}", "power.stateFolder=/srv",
                  "power.resources.limits.memory=65Mi", "power.image.tag=9", "image.pullPolicy=Always",
                  "imagePullSecrets[0].name=mine"):
        other = made(value)
        assert other[0] != name and other[1] != pod, value


def test_nothing_of_ours_gets_the_agent_or_is_a_job_on_its_node(helm):
    text = helm("template", "t", str(CHART), "--kube-version", "1.34.0", "--namespace", "first", "--set", "inject.enabled=true,"
                "pods.enabled=true,pods.namespace=second,power.enabled=true,power.namespace=third,power.broker=hub:8883,"
                "power.enrol.hub=https://hub,power.enrol.nodes={n1}")
    pods = [(kind[1], re.search(r"(?m)^  namespace: (\S+)$", part)[1], part) for part in text.split("\n---\n")
            if (kind := re.search(r"(?m)^kind: (Deployment|DaemonSet|Job)$", part))]
    assert {space for _, space, _ in pods} == {"first", "second", "third"}
    lists = [json.loads(found) for found in re.findall(r"metadata.name, operator: NotIn, values: (.*)}", text)]
    assert len(lists) == 2 and all({"kube-system", "first", "second", "third"} <= set(names) for names in lists)
    for kind, space, part in pods:  # tide-pods knows its own namespace, and a Job ends at once
        assert ('threadtide.io/elastic: "false"' in part) == (kind != "Job" and space != "second"), (kind, space)


def test_numbers_are_on_loopback_unless_they_are_exposed(helm):
    def made(*values):
        return helm("template", "t", str(CHART), "--kube-version", "1.34.0", "--set", ",".join(("inject.enabled=true", *values)))

    hidden = made()
    assert hidden.count("--metrics=127.0.0.1:8081") == 2 and "port: metrics" not in hidden  # the controller's, the injector's
    shown = made("metrics.expose=true")
    assert shown.count("--metrics=:8081") == 2 and shown.count("- {port: metrics, protocol: TCP}") == 2
    assert made("metrics.expose=true", "metrics.from[0].podSelector.matchLabels.app=prometheus").count("app: prometheus") == 2


def test_a_packed_chart_holds_the_definition_itself_and_not_a_link(helm, tmp_path):
    helm("package", str(CHART), "--destination", str(tmp_path))
    shown = helm("show", "all", str(next(tmp_path.glob("*.tgz"))))
    assert "networkPolicy" in shown
    made = helm("template", "t", str(next(tmp_path.glob("*.tgz"))), "--kube-version", "1.34.0",
                "--show-only", "templates/crd.yaml")
    assert "elastictrainingjobs.threadtide.io" in made and json.dumps("keep")[1:-1] in made
