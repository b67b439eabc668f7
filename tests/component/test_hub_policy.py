# SPDX-License-Identifier: Apache-2.0
"""tide-hub policy: what a person at a terminal sees of a good and of a bad policy."""
import subprocess

import pytest

GOOD = """version: 1
org: unlp
zone: America/Argentina/Buenos_Aires
rules:
- {area: unlp/lab3, cap: 1200 W, floor: 300 W}
- {area: unlp/lab3, when: "Mon-Fri 18:00-23:00", cap: 800 W}
- {area: unlp/lab3, when: carbon > 400 g/kWh, cap: 700 W}
- {room: unlp/lab3, when: absent 15 min, off: [ac, lights]}
"""


@pytest.fixture
def policy(build_dir, tmp_path):
    def run(*arguments):
        done = subprocess.run([build_dir / "tide-hub", "policy", *map(str, arguments)],
                              capture_output=True, text=True, timeout=30, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    (tmp_path / "good.yaml").write_text(GOOD)
    run.folder = tmp_path
    return run


def test_a_good_policy_is_said_to_be_good(policy):
    assert policy("check", "good.yaml") == (
        0, "good.yaml: 5 rules for unlp, no contradiction in the coming year\n", "")


def test_rules_that_nobody_keeps_are_warned_of_where_areas_names_units(policy):
    areas = "areas: [{area: unlp/lab3, unit: lab3}, {area: unlp/lab4, name: Laboratory 4}]\nrules:"
    (policy.folder / "typed.yaml").write_text(GOOD.replace("rules:", areas) + "- {area: unlp/lab4, cap: 5 W, floor: 1 W}\n")
    code, out, err = policy("check", "typed.yaml")
    assert (code, out) == (0, "typed.yaml: 7 rules for unlp, no contradiction in the coming year\n")
    assert err == "typed.yaml:10:26: warning: no unit stands in unlp/lab4 or below it: nobody keeps this rule\n"


def test_a_bad_one_is_refused_with_file_line_and_column(policy):
    (policy.folder / "bad.yaml").write_text(GOOD.replace("800 W", "200 W"))
    code, out, err = policy("check", "bad.yaml")
    assert (code, out) == (3, "")
    assert err.startswith("bad.yaml:5:41: the floor of unlp/lab3, 300 W, is above the cap of 200 W in line 6")


def test_an_anchor_bomb_is_refused(policy):
    bomb = "a: &a [x]\n" + "".join(f"{k}: &{k} [*{p}, *{p}]\n" for p, k in zip("abcdefgh", "bcdefghi"))
    (policy.folder / "bomb.yaml").write_text(bomb)
    assert policy("check", "bomb.yaml") == (
        3, "", "bomb.yaml:1:4: an anchor: write the value where it is needed (tide why bad-policy-file)\n")
    (policy.folder / "large.yaml").write_text("# " + "x" * (10 << 20))
    assert policy("check", "large.yaml") == (
        3, "", "tide-hub: large.yaml: more than a MiB: this is no policy (tide why bad-policy-file)\n")


def test_a_missing_file_is_named(policy):
    assert policy("check", "none.yaml") == (3, "", "tide-hub: none.yaml: No such file or directory (tide why bad-policy-file)\n")


def test_explain_follows_the_window_in_its_zone(policy):
    def cap(*options):
        code, out, err = policy("explain", "unlp/lab3", "--file", "good.yaml", *options)
        assert (code, err) == (0, "")
        return next(line for line in out.splitlines() if line.startswith("  cap ")).split(": ", 1)[1]

    assert cap("--at", "2026-11-23 17:59") == "cap 1200 W (breaker)"
    assert cap("--at", "2026-11-23 18:00").startswith("cap 800 W")
    assert cap("--at", "2026-11-23T20:59Z") == "cap 1200 W (breaker)"
    assert cap("--at", "2026-11-23T21:00Z").startswith("cap 800 W")
    assert cap("--at", "2026-11-28 18:00") == "cap 1200 W (breaker)"  # a Saturday
    assert cap("--at", "2026-11-28 18:00", "--unsynchronised").startswith("cap 800 W")
    assert cap("--at", "2026-11-28 18:00", "--carbon", "401").startswith("cap 700 W")


def test_explain_names_switches_and_what_is_unknown(policy):
    _, out, _ = policy("explain", "unlp/lab3", "--file", "good.yaml", "--absent", "15min")
    assert "  off       line 8    unlp/lab3: off: ac lights, absent 15 min\n" in out
    assert "  unknown   line 7    unlp/lab3: cap 700 W (breaker), carbon > 400 g/kWh\n" in out
    _, out, _ = policy("explain", "unlp/lab3", "--file", "good.yaml", "--absent", "14min")
    assert "off" not in out


def test_diff_says_what_changed_and_its_status_that_it_did(policy):
    (policy.folder / "new.yaml").write_text(GOOD.replace("1200 W", "1.1 kW").replace(", lights", ""))
    assert policy("diff", "good.yaml", "good.yaml") == (0, "", "")
    code, out, err = policy("diff", "good.yaml", "new.yaml")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "- unlp/lab3: off: ac lights, absent 15 min",
        "~ unlp/lab3: cap 1100 W (breaker); was: cap 1200 W (breaker)",
        "+ unlp/lab3: off: ac, absent 15 min"]


@pytest.mark.parametrize("arguments, told", [
    ((), "Usage: tide-hub policy"),
    (("explain",), "use tide-hub policy explain AREA"),
    (("explain", "Lab 3"), "use a path as unlp/lab3"),
    (("explain", "unlp", "--file", "good.yaml", "--at", "noon"), "--at 'noon': use a time as 18:30"),
    (("explain", "unlp", "--carbon", "much"), "--carbon 'much': use a number of g/kWh"),
    (("diff",), "use tide-hub policy diff"),
    (("check", "--colour"), "Try 'tide-hub policy --help'"),
])
def test_wrong_usage_says_what_is_right(policy, arguments, told):
    code, out, err = policy(*arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_an_area_of_another_organization_is_refused(policy):
    code, _, err = policy("explain", "uba/lab1", "--file", "good.yaml")
    assert (code, err) == (3, "tide-hub: uba/lab1 does not lie in the organization unlp (tide why hub-has-none)\n")
