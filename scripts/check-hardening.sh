#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/check-hardening.sh [--lazy] FILE...
# Proves from the files themselves that what we ship is hardened. A program or library is position
# independent, has no executable stack and no segment that is both writable and executable; its
# relocations are read-only after the start, all bound by then; it calls the stack protector and the
# checked functions of _FORTIFY_SOURCE. --lazy: symbols may be bound later, as the agent's are.
set -euo pipefail
export LC_ALL=C

lazy=no
if [ "${1:-}" = --lazy ]; then
    lazy=yes
    shift
fi
[ $# -gt 0 ] || { echo "usage: scripts/check-hardening.sh [--lazy] FILE..." >&2; exit 2; }

failed=0
complain() {
    printf '%s: %s\n' "$file" "$*" >&2
    failed=1
}

for file; do
    header=$(readelf -hW "$file")
    segments=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    imports=$(readelf -W --dyn-syms "$file" | awk '$7 == "UND" { sub(/@.*/, "", $8); print $8 }')

    grep -qE 'Type: +DYN ' <<<"$header" || complain "is not position independent"
    grep -q GNU_STACK <<<"$segments" || complain "does not say that its stack is not executable"
    grep -qE ' RWE ' <<<"$segments" && complain "has a segment both writable and executable"
    grep -q GNU_RELRO <<<"$segments" || complain "keeps its relocations writable"
    [ $lazy = yes ] || grep -qE '\(FLAGS(_1)?\).*\b(NOW|BIND_NOW)\b|\(BIND_NOW\)' <<<"$dynamic" ||
        complain "binds symbols after its start"
    grep -qx __stack_chk_fail <<<"$imports" || complain "has no stack protector"
    grep -qE '^__[a-z_]+_chk$' <<<"$imports" || complain "was compiled without _FORTIFY_SOURCE"
done

[ $failed = 0 ] && echo "hardened: $*"
exit $failed
