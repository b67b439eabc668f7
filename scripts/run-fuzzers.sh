#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets and runs each for a fixed time, starting from its seed corpus.
#   scripts/run-fuzzers.sh [SECONDS [BUILD_DIR]]        5 seconds each unless told
# What a run finds new stays in BUILD_DIR/found/NAME; an input that breaks something is kept as
# BUILD_DIR/NAME-crash-…. Exit status: 0 all clean, 1 a target failed, 2 usage or no build.
set -u
export LC_ALL=C

seconds=${1:-5}
case $seconds in
*[!0-9]* | 0) echo "usage: $0 [SECONDS [BUILD_DIR]]" >&2; exit 2 ;;
esac
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build_dir=${2:-$source_dir/build-fuzz}

if [ ! -f "$build_dir/build.ninja" ]; then
    CC=clang meson setup "$build_dir" "$source_dir" -Dfuzz=true -Dtests=false >/dev/null ||
        exit 2
fi
passed=0
failed=0
for file in "$source_dir"/fuzz/fuzz_*.c; do
    name=$(basename "$file" .c)
    short=${name#fuzz_}
    ninja -C "$build_dir" "fuzz/$name" >"$build_dir/$name.build" 2>&1 ||
        { cat "$build_dir/$name.build"; exit 2; }
    mkdir -p "$build_dir/found/$short"
    if "$build_dir/fuzz/$name" -close_fd_mask=3 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -print_final_stats=1 -artifact_prefix="$build_dir/$short-" "$build_dir/found/$short" \
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
