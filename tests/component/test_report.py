# SPDX-License-Identifier: Apache-2.0
"""tide report: a day of a real daemon's history as one web page."""
import datetime
import html.parser
import os
import re
import subprocess

import pytest

from daemon import GUARD_S, eventually


class Page(html.parser.HTMLParser):
    """Which elements are open, and what the page refers to."""
    EMPTY = {"meta"}

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.references = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "action", "data")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()


@pytest.fixture
def report(build_dir, place):
    tided = place.daemon("--cpus", "0-3", "--policy", "equal").start()

    def run(*words):
        return subprocess.run([build_dir / "tide", "report", *words], capture_output=True, text=True, timeout=GUARD_S,
                              env={**os.environ, "TIDE_DIR": str(tided.dir)}, check=False)
    run.tided = tided
    return run


def test_a_day_has_its_jobs_users_threads_and_reasons(report, tmp_path):
    one, two = report.tided.job(name="cnn", weight=300), report.tided.job(name="rnn")
    one.settled(), two.settled()
    two.end()
    eventually(lambda: any(j["ended"] for j in report.tided.api("GET", "/v1/history?since=1")[1]))
    done = report("-o", str(tmp_path / "day.html"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = (tmp_path / "day.html").read_text()
    page = Page(text)
    assert page.open == []
    assert page.references == [] and "script" not in page.seen  # nothing from elsewhere, nothing that runs
    assert "http" not in text.replace("http-equiv", "")
    assert page.seen.count("svg") == 2 and page.seen.count("rect") >= 3
    for words in ("<td>cnn</td>", "<td>rnn</td>", "<td>root</td>" if os.geteuid() == 0 else "<td>", "4 cores", "<td>ended</td>"):
        assert words in text
    reason = report.tided.api("GET", "/v1/history?job=cnn&since=1")[1][0]["allocations"][0]["reason"]
    assert reason in text
    assert report().stdout[:15] == "<!doctype html>"
    assert datetime.date.today().strftime("%d %B %Y") in text


def test_thread_hours_are_those_that_the_history_tells(report):
    job = report.tided.job(name="cnn")
    job.settled()
    job.end()
    past = eventually(lambda: [j for j in report.tided.api("GET", "/v1/history?since=1")[1] if j["ended"]])[0]
    ends = [a["time"] for a in past["allocations"][:-1]]
    hours = sum(a["threads"] * (end - a["time"]) for a, end in zip(past["allocations"], [past["ended"], *ends])) / 3600
    row = re.search(r"<td>cnn</td>.*?</tr>", report().stdout, re.S)[0]
    assert abs(float(re.findall(r'<td class="n">([\d.]+)</td>', row)[-2]) - hours) < 0.051


def test_a_day_without_jobs_says_so(report):
    for day in ("yesterday", "2020-02-29"):
        done = report("--day", day)
        assert done.returncode == 0
        assert "No job ran on this day." in done.stdout
    assert "Saturday, 29 February 2020" in done.stdout


@pytest.mark.parametrize("day", ["tomorrow", "2026-02-30", "2026-13-01", "26-01-01", "2026-1-1", "2026-01-01x", "", "2999-01-01",
                                 "1960-01-01"])
def test_what_is_no_day_is_refused(report, day):
    done = report("--day", day)
    assert done.returncode == 2
    assert done.stderr.startswith("tide: report: --day: ")


def test_a_file_that_cannot_be_written_is_told(report):
    for path in ("/nowhere/day.html", "/dev/full"):
        done = report("-o", path)
        assert done.returncode == 1
        assert f"cannot write {path}" in done.stderr
