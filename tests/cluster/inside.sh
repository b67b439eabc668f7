#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the machine: pytest with these arguments, from the root control group, in which jobs are that no
# manager has put elsewhere. Everything takes ten to twenty times as long here.
cd "$(dirname "$0")/../.." || exit 1
echo $$ >/sys/fs/cgroup/cgroup.procs
export TIDE_TEST_SLOWNESS=${TIDE_TEST_SLOWNESS:-4} TIDE_BUILD_DIR=$PWD/build PYTHONDONTWRITEBYTECODE=1
exec python3 -m pytest -v --color=no -rs --tb=short --durations=0 --durations-min=1 -p no:cacheprovider --rootdir="$PWD" \
    --junitxml=results/junit.xml "$@"
