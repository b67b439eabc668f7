#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/agent-tree.sh DIR STAMP LIBRARY SUBDIR… [-- LIBRARY SUBDIR…]
# Lays out the agent's directory in the build tree: LIBRARY as DIR/SUBDIR/libtide-agent.so for
# every SUBDIR. Copies, not links: the directory may be mounted elsewhere alone. Each copy takes
# its place by a rename, since running programs have the old one mapped.
set -eu
dir=$1
stamp=$2
shift 2
library=
for word; do
    if [ "$word" = -- ]; then
        library=
    elif [ -z "$library" ]; then
        library=$word
    else
        mkdir -p "$dir/$word"
        cp "$library" "$dir/$word/.new"
        mv -f "$dir/$word/.new" "$dir/$word/libtide-agent.so"
    fi
done
: >"$stamp"
