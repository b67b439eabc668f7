#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/check-agent-elf.sh LIBRARY
# Proves from the file itself that the agent loads where it has to: under every glibc from 2.17 on,
# needing nothing but the C library, without text relocations or an executable stack, with its
# thread-local variables in the initial block, and exporting only what it means to interpose.
set -euo pipefail
export LC_ALL=C

library=${1:?usage: scripts/check-agent-elf.sh LIBRARY}
newest=2.17
needed='libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1'
exported='tide_agent_program_api|__gmon_start__|ggml_graph_(plan|compute)|_ZNK?(5Eigen15ThreadPoolTempl|3tsl|10tensorflow).*'

failed=0
complain() {
    printf '%s: %s\n' "$library" "$*" >&2
    failed=1
}

dynamic=$(readelf -dW "$library")
segments=$(readelf -lW "$library")
# Index of the section (UND: imported), then name@VERSION.
symbols=$(readelf -W --dyn-syms "$library" |
    awk '$1 ~ /^[0-9]+:$/ && $8 != "" && $5 != "LOCAL" { print $7, $8 }')
[ -n "$symbols" ] || complain "no dynamic symbols: not the agent?"

while read -r version symbol; do
    [ "$(printf '%s\n' "$version" $newest | sort -V | tail -n 1)" = $newest ] ||
        complain "$symbol needs glibc $version, newer than $newest"
done < <(sed -nE 's/^UND ((.*)@+GLIBC_([0-9.]+))$/\3 \1/p' <<<"$symbols")

while read -r other; do
    complain "$other: a version that is not glibc's"
done < <(sed -nE 's/^UND (.*@+.*)$/\1/p' <<<"$symbols" | grep -vE '@+GLIBC_[0-9.]+$' || true)

while read -r name; do
    complain "needs $name"
done < <(sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' <<<"$dynamic" | grep -vxE "$needed" || true)

while read -r name; do
    complain "exports $name"
done < <(sed -nE '/^UND /d; s/^[^ ]+ //p' <<<"$symbols" | grep -vxE "$exported" || true)

grep -q TEXTREL <<<"$dynamic" && complain "has text relocations"
grep -qE 'GNU_STACK.* RWE' <<<"$segments" && complain "asks for an executable stack"
grep -q 'UND __tls_get_addr' <<<"$symbols" &&
    complain "calls __tls_get_addr: compile with -ftls-model=initial-exec"

[ $failed = 0 ] && echo "$library: loads on glibc >= $newest, needs libc alone"
exit $failed
