# SPDX-License-Identifier: Apache-2.0
"""The documents as a site: its pages work from files, without a network. scripts/check-documents.py checks the sources."""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import pytest

from conftest import GUARD_S, ROOT

CHROMIUM = shutil.which(os.environ.get("TIDE_CHROMIUM") or "chromium")
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build").resolve()


class Page(html.parser.HTMLParser):
    """Links of a page of the site, files that it loads, and its anchors."""

    def __init__(self, file):
        super().__init__()
        self.links, self.loads, self.anchors = set(), set(), set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        if tag == "a" and "href" in attributes:
            self.links.add(attributes["href"])
        elif tag == "link" and "href" in attributes:
            self.loads.add(attributes["href"])
        elif "src" in attributes:
            self.loads.add(attributes["src"])


def theme_is_there():
    if not all(map(shutil.which, ("mkdocs", "mandoc", "scdoc"))):
        return False
    said = subprocess.run(["mkdocs", "build", "--help"], capture_output=True, text=True, timeout=GUARD_S, check=False)
    return "material" in said.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not theme_is_there():
        pytest.skip("no mkdocs-material, mandoc or scdoc: `make site` installs them")
    to = tmp_path_factory.mktemp("site") / "site"
    built = subprocess.run([ROOT / "scripts/site.py", "--build", BUILD, "--to", to], capture_output=True, text=True,
                           timeout=4 * GUARD_S, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return to


def test_site_holds_all_that_its_pages_link_to(site):
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    broken = []
    for file, page in pages.items():
        for link in page.links | page.loads:
            address = urllib.parse.urlsplit(link)
            if address.scheme and link in page.links:
                continue
            target = (file.parent / urllib.parse.unquote(address.path)).resolve() if address.path else file
            anchors = pages[target].anchors if target in pages else ()
            if address.scheme or address.netloc or not target.is_file() or \
                    (address.fragment and urllib.parse.unquote(address.fragment) not in anchors):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert not broken
    manual = {source.stem for source in (ROOT / "man").glob("*.scd")}
    assert {f"man/{name}.html" for name in manual} | {"index.html", "docs/index.html", "docs/concepts.html", "docs/design/01-gate.html"} <= \
        {str(file.relative_to(site)) for file in pages}


def test_every_path_of_openapi_has_its_row(site):
    text = (site / "docs/reference-openapi.html").read_text()
    for name in ("openapi.yaml", "openapi-hub.yaml"):
        paths = re.findall(r"^  (/v1/\S+):$", (ROOT / "docs" / name).read_text(), re.M)
        assert len(paths) > 10 and (site / "docs" / name).is_file()
        assert not [path for path in paths if f"<code>{path}</code>" not in text]


def test_page_of_the_manual_has_its_headings_options_and_references(site):
    page = (site / "man/tide-run.1.html").read_text()
    assert 'id="synopsis"' in page and "<b>--weight</b>" in page and 'href="tided.8.html"' in page
    assert "@man" not in page, "build/document was not asked"
    readme = (site / "index.html").read_text()
    assert "shared|exclusive|quota" in readme, "a bar in a table"


@pytest.mark.skipif(not CHROMIUM, reason="no chromium; TIDE_CHROMIUM names another browser")
def test_search_finds_a_page_in_a_site_that_is_opened_from_its_files(site, tmp_path):
    page = f"{(site / 'docs/energy.html').as_uri()}?q=oversubscription"
    shown = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
         "--virtual-time-budget=30000", "--dump-dom", page],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=2 * GUARD_S, check=True).stdout
    assert re.search(r'href="[^"]*man/tide-doctor\.1\.html[^"]*" class="md-search-result__link"', shown)


LOOP = """\
Status Model::OptimizeLoop(AutotuneAlgorithm algorithm,
                           CancellationManager* cancellation_manager) {
  while (true) {
      while (!cancellation_manager->IsCancelled() &&
             due > now) {
      }
      if (cancellation_manager->IsCancelled()) {
        return OkStatus();
      }
  }
}

void Model::Other(CancellationManager* cancellation_manager) {
      while (!cancellation_manager->IsCancelled() &&
             due > now) {
      }
}
"""


def test_the_change_for_tensorflow_asks_whether_a_cancellation_has_begun_and_changes_nothing_else():
    changed = subprocess.run(["sed", "-E", "-f", ROOT / "docs/tensorflow-stall.sed"], input=LOOP, text=True, check=True,
                             capture_output=True).stdout
    added = [line.strip() for line in changed.splitlines() if "IsCancelling" in line]
    assert added == ["!cancellation_manager->IsCancelling() &&", "if (cancellation_manager->IsCancelling()) {"]
    head, tail = changed.split("void Model::Other")
    assert "void Model::Other" + tail == LOOP[LOOP.index("void Model::Other"):]
    assert head.count("IsCancelled()") == 3
    left = changed.replace("             !cancellation_manager->IsCancelling() &&\n             !cancellation_manager->IsCancelled() &&\n", "", 1)
    left = left.replace("      if (cancellation_manager->IsCancelling()) {\n        return absl::OkStatus();\n      }\n", "", 1)
    assert left == LOOP
    assert subprocess.run(["sed", "-E", "-f", ROOT / "docs/tensorflow-stall.sed"], input=tail, text=True, check=True,
                          capture_output=True).stdout == tail
