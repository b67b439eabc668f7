#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Proves that policy code is pure: what its objects import is each other, mem* and what compilers
# add by themselves (stack protector, sanitizers, bcmp for a memcmp against 0), and pow for hesrpt
# alone - no clock, I/O, allocation, randomness or qsort.
# Usage: check-policy-purity.sh LIBRARY-OR-OBJECT...
set -eu

if [ $# -eq 0 ]; then
    echo "usage: $0 LIBRARY-OR-OBJECT..." >&2
    exit 2
fi

defined=$(nm -g --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u)
if [ -z "$defined" ]; then
    echo "$*: defines nothing, nothing was proved" >&2
    exit 1
fi

impure=$(nm -A -u "$@" | awk -v defined="$defined" '
    BEGIN {
        n = split(defined, name, "\n")
        for (i = 1; i <= n; i++)
            own[name[i]] = 1
    }
    {
        symbol = $NF
        if (symbol in own || symbol ~ /^(mem(cpy|set|move|cmp)|bcmp)$/ || symbol ~ /^__stack_chk_/ ||
            (symbol == "pow" && $0 ~ /hesrpt/) ||
            symbol ~ /^__(asan|ubsan|tsan|sanitizer)_/ || symbol == "_GLOBAL_OFFSET_TABLE_")
            next
        print
    }')
if [ -n "$impure" ]; then
    echo "policy code imports what is not pure:" >&2
    echo "$impure" >&2
    exit 1
fi
echo "pure: $(echo "$defined" | wc -l) symbols defined, nothing but mem* (and pow for hesrpt) imported"
