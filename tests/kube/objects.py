# SPDX-License-Identifier: Apache-2.0
"""Objects that several tests make, and looks at them."""
from daemon import eventually


def pod(name, *command, cpu="100m", container=None, **spec):
    """Returns a pod of one container; more of it in @container, more of the pod in keywords."""
    resources = {"requests": {"cpu": cpu, "memory": "16Mi"}, "limits": {"cpu": cpu, "memory": "16Mi"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "main", "image": "local/none", "command": list(command) or ["true"],
                        "resources": resources, **(container or {})}], **spec}}


class Pods:
    """Those of a namespace."""

    def __init__(self, plane, namespace):
        self.plane, self.path = plane, f"/api/v1/namespaces/{namespace}/pods"

    def make(self, name, *command, **more):
        return self.plane.must("POST", self.path, pod(name, *command, **more))

    def get(self, name):
        """The object, or None."""
        status, answer = self.plane.api("GET", f"{self.path}/{name}")
        return answer if status == 200 else None

    def until(self, name, phase):
        def there():
            found = self.get(name)
            return found if found and found["status"].get("phase") == phase else None
        return eventually(there)

    def condition(self, name, kind):
        """A condition of the pod; {} if it has none of the kind."""
        return next((entry for entry in self.get(name)["status"].get("conditions", ())
                     if entry["type"] == kind), {})

    def until_ready(self, name, ready=True):
        return eventually(lambda: self.condition(name, "Ready").get("status") == str(ready))

    def state(self, name):
        """Returns the state of its first container."""
        statuses = self.get(name)["status"].get("containerStatuses")
        return statuses[0]["state"] if statuses else {}

    def delete(self, name):
        self.plane.must("DELETE", f"{self.path}/{name}")

    def until_gone(self, name):
        eventually(lambda: self.get(name) is None)

    def resize(self, name, cpu):
        amounts = {"cpu": cpu, "memory": "16Mi"}
        return self.plane.must("PATCH", f"{self.path}/{name}/resize", {"spec": {"containers": [{
            "name": "main", "resources": {"requests": amounts, "limits": amounts}}]}},
            "application/strategic-merge-patch+json")
