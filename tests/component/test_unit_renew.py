# SPDX-License-Identifier: Apache-2.0
"""A unit's certificate near its end: the hub signs another one over the unit's own connection, and the unit goes on with it."""
import shutil
import subprocess

import pytest

from daemon import eventually
from hub import TOOLS, Serving
from unit_bed import bed, program, rig  # noqa: F401

pytestmark = pytest.mark.skipif(bool(rig.missing()) or not all(map(shutil.which, TOOLS)), reason="mosquitto or openssl is missing")


@pytest.fixture
def hub(build_dir, tmp_path):
    hub = Serving(build_dir / "tide-hub", tmp_path)
    hub.start()
    yield hub
    hub.stop()


def sign(hub, name, days):
    """A certificate of the hub's authority that ends in so many days."""
    subprocess.run(["openssl", "x509", "-req", "-in", hub.folder / f"{name}.csr", "-CA", hub.state / "trust/ca.crt",
                    "-CAkey", hub.state / "trust/ca.key", "-days", str(days), "-out", hub.folder / f"{name}.crt",
                    "-extfile", "/dev/stdin"], input="extendedKeyUsage=clientAuth\nkeyUsage=digitalSignature\n",
                   text=True, check=True, capture_output=True)


def days_left(cert):
    return [d for d in (5, 29, 31, 80) if subprocess.run(
        ["openssl", "x509", "-checkend", str(d * 86400), "-in", cert], capture_output=True, check=False).returncode == 0]


def unit_of(bed, hub):  # noqa: F811
    return bed.unit(f"[unit]\nname = lab3\n[uplink]\nbroker = 127.0.0.1:{hub.port}\nca = {hub.state}/trust/ca.crt\n"
                    f"cert = {hub.folder}/lab3.crt\nkey = {hub.folder}/lab3.key\n")


def test_a_certificate_near_its_end_is_renewed_and_used(bed, hub):  # noqa: F811
    hub.enrol("lab3")
    sign(hub, "lab3", 20)
    cert = hub.folder / "lab3.crt"
    assert days_left(cert) == [5]
    hub.serve()
    unit = unit_of(bed, hub)
    unit.wait_line("the certificate was renewed")
    assert days_left(cert) == [5, 29, 31, 80]
    eventually(lambda: sum("uplink: connected" in line for line in unit.lines) == 2)
    assert not list(hub.folder.glob("lab3.crt?*"))


def test_what_is_no_certificate_for_this_unit_leaves_the_file(bed, hub):  # noqa: F811
    hub.enrol("lab3")
    sign(hub, "lab3", 20)
    cert = (hub.folder / "lab3.crt").read_bytes()
    unit = unit_of(bed, hub)  # nobody serves: the test answers
    process, heard = hub.listen("hub", "tide/1/lab3/up/request")
    eventually(lambda: "BEGIN" in heard.read_text())
    process.terminate()
    hub.enrol("lab4")
    for wrong, reason in (((hub.folder / "lab4.crt").read_text(), "it is for another key"),):
        hub.publish("hub", "tide/1/lab3/down/certificate", wrong)
        unit.wait_line(f"the new certificate is not used: {reason}")
        assert (hub.folder / "lab3.crt").read_bytes() == cert


def test_a_file_that_cannot_be_replaced_is_told(bed, hub, tmp_path):  # noqa: F811
    hub.enrol("lab3")
    sign(hub, "lab3", 20)
    hub.serve()
    target = tmp_path / "elsewhere.crt"
    (hub.folder / "lab3.crt").rename(target)
    (hub.folder / "lab3.crt").symlink_to(target)  # a file that wholefile does not follow
    unit = unit_of(bed, hub)
    unit.wait_line("when the certificate ends is not known")
