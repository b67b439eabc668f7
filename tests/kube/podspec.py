# SPDX-License-Identifier: Apache-2.0
"""A pod's specification as the runner takes it: quantities, environment, volumes."""
import base64
import datetime
import os
import re
import time

SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20,
            "Gi": 2**30, "Ti": 2**40}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RENEW_AT = 0.8  # of a token's life, as kubelet does


class NotYet(Exception):
    """Something that the pod needs is not there; the text says what."""


def mcpu(quantity):
    text = str(quantity or 0)
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


def size_bytes(quantity):
    number, suffix = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(quantity or 0)).groups()
    return round(float(number) * SUFFIXES[suffix])


def resources(container, kind):
    """{"cpu": mcpu, "memory": bytes} of its requests or limits."""
    given = container.get("resources", {}).get(kind, {})
    return {"cpu": mcpu(given.get("cpu")), "memory": size_bytes(given.get("memory"))}


def pod_requests(pod):
    """Their sum over the containers."""
    each = [resources(container, "requests") for container in pod["spec"]["containers"]]
    return {name: sum(r[name] for r in each) for name in ("cpu", "memory")}


# ---- environment ----

def field(pod, path, status):
    """The downward API's fieldRef. @status: {"podIP": …, "hostIP": …}."""
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if keyed:
        return pod["metadata"].get(keyed[1], {}).get(keyed[2], "")
    if path.startswith("status."):
        return status[path.removeprefix("status.").replace("podIPs", "podIP")]
    value = pod
    for part in path.split("."):
        value = value.get(part, "")
    return value


def resource_field(pod, container, reference):
    name = reference.get("containerName", container["name"])
    of = next(c for c in pod["spec"]["containers"] if c["name"] == name)
    kind, _, what = reference["resource"].partition(".")
    amount, divisor = resources(of, kind)[what], reference.get("divisor", "0")
    if what == "cpu":
        return str(-(-amount // (mcpu(divisor) or 1000)))
    return str(-(-amount // (size_bytes(divisor) or 1)))


def lookup(client, namespace, kind, reference):
    """The data of a configMap or secret; {} if it is absent and may be so."""
    status, answer = client.api("GET", f"/api/v1/namespaces/{namespace}/{kind}/{reference['name']}")
    if status == 200:
        data = answer.get("data", {})
        data.update({key: base64.b64decode(value) for key, value in answer.get("binaryData", {}).items()})
        if kind == "secrets":
            data = {key: base64.b64decode(value).decode() for key, value in data.items()}
        return data
    if status == 404 and reference.get("optional"):
        return {}
    raise NotYet(f"{kind[:-1]} {reference['name']}: {answer.get('message', answer)}")


def expand(text, environment):
    """$(NAME), where NAME is known; $$ is a $."""
    return re.sub(r"\$(\$|\((\w+)\))", lambda m: "$" if m[1] == "$" else
                  environment.get(m[2], m[0]), text)


def environment_of(client, pod, container, status, given):
    """@given: what the image would have set."""
    namespace = pod["metadata"]["namespace"]
    result = {"PATH": PATH, "HOME": "/root", "HOSTNAME": pod["metadata"]["name"], **given}
    for source in container.get("envFrom", ()):
        for key, kind in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if key in source:
                data = lookup(client, namespace, kind, source[key])
                result.update({source.get("prefix", "") + name: text for name, text in data.items()})
    for entry in container.get("env", ()):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            value = field(pod, source["fieldRef"]["fieldPath"], status)
        elif "resourceFieldRef" in source:
            value = resource_field(pod, container, source["resourceFieldRef"])
        elif "configMapKeyRef" in source or "secretKeyRef" in source:
            key = "configMapKeyRef" if "configMapKeyRef" in source else "secretKeyRef"
            kind = "configmaps" if key == "configMapKeyRef" else "secrets"
            data = lookup(client, namespace, kind, source[key])
            if source[key]["key"] not in data:
                if source[key].get("optional"):
                    continue
                raise NotYet(f"{kind[:-1]} {source[key]['name']} has no {source[key]['key']}")
            value = data[source[key]["key"]]
        else:
            value = expand(entry.get("value", ""), result)
        result[entry["name"]] = value
    return result


# ---- volumes ----

def write(path, text):
    """All of it or nothing, as kubelet replaces files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.replace(new, path)


class Token:
    """A service account's token in a file, renewed before it ends."""

    def __init__(self, client, pod, source, path):
        self.client, self.pod, self.source, self.path = client, pod, source, path
        self.renew_at = 0

    def refresh(self):
        if time.time() < self.renew_at:
            return
        meta, spec = self.pod["metadata"], self.pod["spec"]
        account = spec.get("serviceAccountName", "default")
        audience = self.source.get("audience")
        status, answer = self.client.api(
            "POST", f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token",
            {"spec": {"audiences": [audience] if audience else [],
                      "expirationSeconds": self.source.get("expirationSeconds", 3600),
                      "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta["name"],
                                         "uid": meta["uid"]}}})
        if status != 201:
            raise NotYet(f"token of {account}: {answer.get('message', answer)}")
        write(self.path, answer["status"]["token"])
        now = time.time()
        end = datetime.datetime.fromisoformat(
            answer["status"]["expirationTimestamp"].replace("Z", "+00:00")).timestamp()
        self.renew_at = now + (end - now) * RENEW_AT


class Volumes:
    """A pod's volumes as directories of @folder."""

    def __init__(self, client, pod, folder, status):
        self.client, self.pod, self.folder, self.status = client, pod, folder, status
        self.tokens = []
        self.paths = {volume["name"]: self._make(volume)
                      for volume in pod["spec"].get("volumes", ())}

    def _make(self, volume):
        if "hostPath" in volume:
            path = self.folder.__class__(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                raise NotYet(f"hostPath {path} does not exist")
            return path
        path = self.folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
            self._fill(path, source)
        return path

    def _fill(self, path, source):
        if "serviceAccountToken" in source:
            token = source["serviceAccountToken"]
            self.tokens.append(Token(self.client, self.pod, token, path / token["path"]))
            self.tokens[-1].refresh()
        for key, kind in (("configMap", "configmaps"), ("secret", "secrets")):
            if key in source:
                reference = {"name": source[key].get("secretName", ""), **source[key]}
                data = lookup(self.client, self.pod["metadata"]["namespace"], kind, reference)
                items = source[key].get("items") or [{"key": name, "path": name} for name in data]
                for item in items:
                    if item["key"] in data:
                        write(path / item["path"], data[item["key"]])
                    elif not source[key].get("optional"):
                        raise NotYet(f"{kind[:-1]} {reference['name']} has no {item['key']}")
        for item in source.get("downwardAPI", {}).get("items", ()):
            write(path / item["path"], field(self.pod, item["fieldRef"]["fieldPath"], self.status))

    def refresh(self):
        """Tokens that end soon. Fails with what the API says."""
        for token in self.tokens:
            token.refresh()
