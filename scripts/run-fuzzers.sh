#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets and runs each for a fixed time, starting from its seed corpus.
#   scripts/run-fuzzers.sh [SECONDS [BUILD_DIR [SEED]]]     5 seconds each unless told
# Without SEED each run has another seed, and what it finds new stays in BUILD_DIR/found/NAME for the
# next. With SEED a run forgets what others found and its addresses are fixed: it tries the same
# inputs, in the same order, as far as its time goes (not where threads or time matter). An input that breaks something is kept as BUILD_DIR/NAME-crash-….
# Exit status: 0 all clean, 1 a target failed, 2 usage or no build.
set -u
export LC_ALL=C

seconds=${1:-5}
seed=${3:-0} # 0: libFuzzer chooses one, and writes it into the log
case $seconds:$seed in
0:* | *[!0-9:]* | *:*:*) echo "usage: $0 [SECONDS [BUILD_DIR [SEED]]]" >&2; exit 2 ;;
esac
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build_dir=${2:-$source_dir/build-fuzz}

if [ ! -f "$build_dir/build.ninja" ]; then
    CC=clang meson setup "$build_dir" "$source_dir" -Dfuzz=true -Dtests=false >/dev/null ||
        exit 2
fi
fixed=
[ "$seed" -eq 0 ] || ! setarch -R true 2>/dev/null || fixed="setarch -R"
passed=0
failed=0
for file in "$source_dir"/fuzz/fuzz_*.c; do
    name=$(basename "$file" .c)
    short=${name#fuzz_}
    ninja -C "$build_dir" "fuzz/$name" >"$build_dir/$name.build" 2>&1 ||
        { cat "$build_dir/$name.build"; exit 2; }
    found=$build_dir/found/$short
    [ "$seed" -eq 0 ] || { found=$build_dir/seeded/$short; rm -rf "$found"; }
    mkdir -p "$found"
    if $fixed "$build_dir/fuzz/$name" -close_fd_mask=3 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -seed="$seed" -print_final_stats=1 -artifact_prefix="$build_dir/$short-" "$found" \
        "$source_dir/fuzz/corpus/$short" >"$build_dir/$name.log" 2>&1; then
        passed=$((passed + 1))
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build_dir/$name.log")
        echo "ok    $short: $runs inputs"
    else
        failed=$((failed + 1))
        echo "FAIL  $short: see $build_dir/$name.log"
        tail -n 40 "$build_dir/$name.log"
    fi
done
echo "fuzzers: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
