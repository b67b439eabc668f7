#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Proves that policy code is pure: what its objects import is each other, mem* and what compilers
# add by themselves (stack protector, checked mem*, sanitizers, bcmp for a memcmp against 0), and pow
# for hesrpt alone - no clock, I/O, allocation, randomness or qsort. With --kube, the libraries are the
# controller's core and the policies: it may allocate and handle strings, too, and still has no clock,
# I/O or chance.
# Usage: check-policy-purity.sh [--kube] LIBRARY-OR-OBJECT...
set -eu

more='^$'
if [ "${1:-}" = --kube ]; then
    more='^(malloc|calloc|realloc|free|str(len|cmp|ncmp|chr|str|cpy|dup)|stpcpy|memchr'
    more="$more|__(mem|str)(cpy|set|move)_chk|v?snprintf|__v?snprintf_chk|(__isoc23_)?strtoll"
    more="$more|kube_phase_name|visible)\$"
    shift
fi

if [ $# -eq 0 ]; then
    echo "usage: $0 [--kube] LIBRARY-OR-OBJECT..." >&2
    exit 2
fi

defined=$(nm -g --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u)
if [ -z "$defined" ]; then
    echo "$*: defines nothing, nothing was proved" >&2
    exit 1
fi

impure=$(nm -A -u "$@" | awk -v defined="$defined" -v more="$more" '
    BEGIN {
        n = split(defined, name, "\n")
        for (i = 1; i <= n; i++)
            own[name[i]] = 1
    }
    NF > 1 {
        symbol = $NF
        if (symbol in own || symbol ~ more || symbol ~ /^(mem(cpy|set|move|cmp)|bcmp)$/ ||
            symbol ~ /^__mem(cpy|set|move)_chk$/ || symbol ~ /^__stack_chk_/ ||
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
echo "pure: $(echo "$defined" | wc -l) symbols defined, nothing imported but what is allowed"
