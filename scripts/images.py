#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the container images from the build tree, without an engine, a registry or the network.

    scripts/images.py [--build DIR] [--to DIR] [--version V] [NAME…]

Each is a file NAME.tar that is an OCI layout and Docker's own format at once: `docker load -i`,
`podman load -i`, `ctr --namespace k8s.io images import`, `kind load image-archive`, `skopeo copy
oci-archive:…`. There is no base image: besides our files it holds the shared libraries that they
need, which are this machine's. The same files give the same bytes: no time, name or order of this
machine goes in. NAME.spdx.json beside it says what is inside (SPDX 2.3): each file with its hash, and
the Debian package and version that it is from.
"""
import argparse
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOBODY = 65532  # as images without a shell have it
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\n"
                  f"nonroot:x:{NOBODY}:{NOBODY}:nonroot:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nnonroot:x:{NOBODY}:\n",
}
EPOCH = "1970-01-01T00:00:00Z"
OURS = "Organization: Threadtide"
ZONES, AUTHORITIES = pathlib.Path("/usr/share/zoneinfo"), pathlib.Path("/usr/share/ca-certificates/mozilla")


class Layer:
    """A tar in the making, whose bytes depend on nothing but what is put in."""

    def __init__(self):
        self.entries = {}
        self.sources = {}  # where files that are not written here were read

    def text(self, path, text):
        self.put(path, text.encode())

    def file(self, path, source):
        """A program or library; also what links point to, without debugging symbols."""
        self.sources[path] = pathlib.Path(source).resolve()
        self.put(path, stripped(source), 0o755 if os.access(source, os.X_OK) else 0o644)

    def folder(self, path, mode=0o755):
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self.entries[path] = (entry, b"")

    def put(self, path, data, mode=0o644):
        entry = tarfile.TarInfo(path)
        entry.mode, entry.size = mode, len(data)
        self.entries[path] = (entry, data)

    def tree(self, path, source, pattern="*"):
        found = sorted(p for p in source.rglob(pattern) if p.is_file())
        if not found:
            sys.exit(f"images: {source} has nothing: is the project built?")
        for file in found:
            self.file(f"{path}/{file.relative_to(source)}", file)

    def libraries_of(self, program):
        """Whatever the dynamic linker loads for it, itself included, at the places it looks at."""
        done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            if "not found" in line:
                sys.exit(f"images: {program}: {line.strip()}")
            if match := re.search(r"(/\S+) \(0x", line):
                self.file(match[1].lstrip("/"), match[1])

    def library(self, name):
        """A library that programs load themselves, and what it needs; at the place where the linker finds it."""
        listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        match = re.search(rf"^\s*{re.escape(name)} \(.*x86-64.*\) => (/\S+)$", listed, re.M)
        if not match:
            sys.exit(f"images: no library {name} here")
        self.file(match[1].lstrip("/"), match[1])
        self.libraries_of(match[1])

    def zones(self):
        """Time zones, by which a power policy's windows and days go; without the copies of each, and this machine's own."""
        found = [file for file in sorted(ZONES.rglob("*"))
                 if file.is_file() and file.relative_to(ZONES).parts[0] not in ("posix", "right", "posixrules", "localtime")
                 and file.read_bytes().startswith(b"TZif")]
        if not found:
            sys.exit(f"images: no time zones in {ZONES}: install tzdata")
        for file in found:
            self.file(str(file).lstrip("/"), file)

    def authorities(self):
        """Those of Mozilla's list, without what this machine trusts besides; at the place where libcurl looks."""
        found = sorted(AUTHORITIES.glob("*.crt"))
        if not found:
            sys.exit(f"images: no certificates in {AUTHORITIES}: install ca-certificates")
        path = "etc/ssl/certs/ca-certificates.crt"
        self.text(path, "".join(file.read_text() for file in found))
        self.sources[path] = found[0]

    def data(self):
        for path in list(self.entries):
            for parent in pathlib.PurePosixPath(path).parents:
                if str(parent) != "." and str(parent) not in self.entries:
                    self.folder(str(parent))
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for _, (entry, data) in sorted(self.entries.items()):
                tar.addfile(entry, io.BytesIO(data))
        return buffer.getvalue()


def stripped(path):
    """A file's bytes; of a program without what differs between two folders it was built in."""
    path = pathlib.Path(path)
    data = path.read_bytes()
    if not data.startswith(b"\x7fELF"):
        return data
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        subprocess.run(["strip", "--strip-unneeded", "--remove-section=.note.gnu.build-id", "-o", out,
                        path.resolve()], check=True)
        return out.read_bytes()


def accounts():
    layer = Layer()
    for path, text in ACCOUNTS.items():
        layer.text(path, text)
    layer.folder("tmp", 0o1777)
    return layer


def tide_kube(build):
    """The controller; the same file is kubectl's plug-in, and the injector, which reads the agent."""
    program = build / "tide-kube"
    libraries, ours = accounts(), Layer()
    libraries.libraries_of(program)
    ours.file("usr/bin/tide-kube", program)
    ours.tree("opt/threadtide/agent", build / "agent", "*.so")
    return [libraries, ours], ["/usr/bin/tide-kube"], "Controller of elastic trainings"


def tide_node(build):
    """Files that pods of a training need, and `cp`, which puts it there: it runs as an init container.
    In a pod it needs no more than a C library from 2.34 on."""
    libraries, ours = accounts(), Layer()
    libraries.file("bin/cp", "/bin/cp")
    for program in ("/bin/cp", build / "tide-tfnode"):
        libraries.libraries_of(program)
    ours.file("opt/threadtide/tide-tfnode", build / "tide-tfnode")
    ours.tree("opt/threadtide/agent", build / "agent", "*.so")
    ours.tree("opt/threadtide/python/threadtide", ROOT / "python/threadtide", "*.py")
    return [libraries, ours], ["/opt/threadtide/tide-tfnode"], "Nodes of elastic trainings"


def tide_power(build):
    """Programs that measure a node: tided and tide-power, and `chown` for the folder that they keep. As nobody,
    unless the pod says otherwise: tided is root in there. A hub's page may have a certificate of a public authority."""
    libraries, ours = accounts(), Layer()
    libraries.file("bin/chown", "/bin/chown")
    libraries.libraries_of("/bin/chown")
    libraries.library("libcurl.so.4")  # host/net/libcurl.c
    libraries.zones()
    libraries.authorities()
    for name in ("tided", "tide-power", "tide", "tide-top"):
        libraries.libraries_of(build / name)
        ours.file(f"usr/bin/{name}", build / name)
    return [libraries, ours], ["/usr/bin/tide-power"], "Power of Kubernetes nodes"


def tide_pods(build):
    """Programs that share a node among its pods: tided, tide-pods and tide, the agent, and `cp`, which puts it where pods
    mount it from."""
    libraries, ours = accounts(), Layer()
    libraries.file("bin/cp", "/bin/cp")
    libraries.libraries_of("/bin/cp")
    libraries.library("libcurl.so.4")  # host/net/libcurl.c
    for name in ("tided", "tide-pods", "tide", "tide-top"):
        libraries.libraries_of(build / name)
        ours.file(f"usr/bin/{name}", build / name)
    ours.tree("opt/threadtide/agent", build / "agent", "*.so")
    return [libraries, ours], ["/usr/bin/tide-pods"], "Cores and threads of Kubernetes nodes' pods"


def debian_packages(paths):
    """path -> (name, version, architecture) of the package that a file is from, if it is from one."""
    names = {}  # dpkg has one or the other since /lib is a link to /usr/lib
    for path in paths:
        short = str(path).removeprefix("/usr")
        names |= {short: path, "/usr" + short: path}
    try:
        said = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return {}
    owner = {names[file]: package.split(",")[0] for package, _, file in
             (line.partition(": ") for line in said.splitlines()) if file in names}
    if not owner:
        return {}
    shown = subprocess.run(["dpkg-query", "--show", "-f", "${binary:Package} ${Package} ${Version} ${Architecture}\n",
                            *sorted(set(owner.values()))], capture_output=True, text=True, check=True)
    facts = {}
    for line in shown.stdout.splitlines():
        full, *rest = line.split()
        facts[full] = facts[rest[0]] = tuple(rest)
    return {path: facts[package] for path, package in owner.items()}


def package_entry(name, version, supplier, purl=None):
    entry = {"SPDXID": "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "name": name,
             "versionInfo": version, "supplier": supplier, "downloadLocation": "NOASSERTION",
             "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
             "licenseDeclared": "Apache-2.0" if supplier == OURS else "NOASSERTION"}
    if purl:
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": purl}]
    return entry


def debian_entry(name, version, architecture):
    return package_entry(name, version, "Organization: Debian", f"pkg:deb/debian/{name}@{version}?arch={architecture}")


def bill_of_materials(name, version, layers, digest, tool="scripts/images.py",
                      product="threadtide", needs=(), linked=(), kind="deb/debian"):
    """The document of what an image or package holds: ours and Debian's packages, and the files of each.
    @product: what our own part is called; @needs: what is not inside, and depended on: "NAME" or "NAME (OPERATOR VERSION)",
    packages of @kind, libraries and files; @linked: entries of what is in our programs."""
    ours = package_entry(product, version, OURS)
    packages, files, relations = {ours["SPDXID"]: ours}, [], []

    def relate(one, kind, other):
        relations.append({"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other})
    relate("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])
    debian_of = debian_packages({source for layer in layers for source in layer.sources.values()})
    for path, (layer, (_, data)) in sorted(
            ((path, (layer, entry)) for layer in layers for path, entry in layer.entries.items()
             if entry[0].isreg()), key=lambda found: found[0]):
        debian = debian_of.get(layer.sources.get(path))
        owner = debian_entry(*debian) if debian else ours
        if owner["SPDXID"] not in packages:
            packages[owner["SPDXID"]] = owner
            relate(ours["SPDXID"], "DEPENDS_ON", owner["SPDXID"])
        files.append({"SPDXID": f"SPDXRef-File-{len(files)}", "fileName": f"./{path}",
                      "checksums": [{"algorithm": kind.upper(), "checksumValue": hashlib.new(kind, data).hexdigest()}
                                    for kind in ("sha1", "sha256")],
                      "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"})
        relate(owner["SPDXID"], "CONTAINS", files[-1]["SPDXID"])
    for name_needed, _, versions in (need.partition(" ") for need in needs):
        purl = None if re.search(r"^/|\.so\b", name_needed) else f"pkg:{kind}/{name_needed}"
        needed = package_entry(name_needed, versions.strip("()") or "NOASSERTION", "NOASSERTION", purl)
        packages[needed["SPDXID"]] = needed
        relate(ours["SPDXID"], "DEPENDS_ON", needed["SPDXID"])
    for entry in linked:
        packages[entry["SPDXID"]] = entry
        relate(ours["SPDXID"], "STATIC_LINK", entry["SPDXID"])
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"threadtide/{name}:{version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/threadtide-{name}-{digest.partition(':')[2]}",
            "creationInfo": {"created": EPOCH, "creators": [f"Tool: {tool}"]},
            "packages": [packages[key] for key in sorted(packages)], "files": files,
            "relationships": relations}


IMAGES = {"tide-kube": tide_kube, "tide-node": tide_node, "tide-pods": tide_pods, "tide-power": tide_power}


class Archive:
    """Blobs by their sums, and the files that name them."""

    def __init__(self):
        self.files = {}

    def add(self, data, media):
        if not isinstance(data, bytes):
            data = json.dumps(data, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    def write(self, path):
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for name, data in sorted(self.files.items()):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))


def place(descriptor):
    return "blobs/sha256/" + descriptor["digest"].partition(":")[2]


def make(name, build, path, version):
    layers, command, title = IMAGES[name](build)
    oci = "application/vnd.oci.image."
    archive = Archive()
    blobs = [archive.add(layer.data(), oci + "layer.v1.tar") for layer in layers]
    labels = {"org.opencontainers.image.title": title, "org.opencontainers.image.version": version,
              "org.opencontainers.image.licenses": "Apache-2.0"}
    config = archive.add({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine], "os": "linux",
        "created": EPOCH, "rootfs": {"type": "layers", "diff_ids": [b["digest"] for b in blobs]},
        "history": [{"created": EPOCH, "created_by": "scripts/images.py"} for _ in blobs],
        "config": {"User": f"{NOBODY}:{NOBODY}", "Entrypoint": command, "Labels": labels,
                   "WorkingDir": "/", "Env": ["PATH=/usr/bin:/bin:/opt/threadtide"]}},
        oci + "config.v1+json")
    manifest = archive.add({"schemaVersion": 2, "mediaType": oci + "manifest.v1+json",
                            "config": config, "layers": blobs}, oci + "manifest.v1+json")
    tag = f"threadtide/{name}:{version}"
    index = {"schemaVersion": 2, "mediaType": oci + "index.v1+json", "manifests": [
        {**manifest, "annotations": {"io.containerd.image.name": f"docker.io/{tag}",
                                     "org.opencontainers.image.ref.name": version}}]}
    archive.files["index.json"] = json.dumps(index, sort_keys=True).encode()
    archive.files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    archive.files["manifest.json"] = json.dumps([{  # Docker's, of before the OCI's
        "Config": place(config), "RepoTags": [tag], "Layers": [place(b) for b in blobs]}]).encode()
    archive.write(path)
    bill = bill_of_materials(name, version, layers, config["digest"])
    path.with_suffix(".spdx.json").write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    print(f"{tag}  {path.stat().st_size / 1e6:.1f} MB  {config['digest']}  {path}")


def project_version(text=None):
    """The version in meson.build, or in this text of it."""
    return re.search(r"version: '([^']+)'", text or (ROOT / "meson.build").read_text())[1]


def main():
    parser = argparse.ArgumentParser(description="Makes container images from the build tree.")
    parser.add_argument("--build", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build")))
    parser.add_argument("--to", type=pathlib.Path, help="DIR (BUILD/images)")
    parser.add_argument("--version", default=project_version())
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(IMAGES))
    options = parser.parse_args()
    if unknown := set(options.names) - set(IMAGES):
        parser.error(f"no such image: {' '.join(unknown)}")
    folder = options.to or options.build / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or IMAGES:
        make(name, options.build, folder / f"{name}.tar", options.version)


if __name__ == "__main__":
    main()
