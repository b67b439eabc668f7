#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/check-aarch64.sh [build] [unit] [component] [tensorflow]
# Cross-compiles the whole tree for aarch64 with gcc and -Werror, and runs its unit tests and some component tests emulated
# (qemu-user). HACKING.md says what that shows and what it does not. Without a word it does all but `tensorflow`, which
# runs the agent in a TensorFlow of PyPI (2 GB). build-check/aarch64 keeps
#
#   root/usr, etc   Debian's packages for arm64, unpacked and not installed: what the tree is linked with, what tests need
#   emulator        qemu-aarch64-static, from its package if it is not installed
#   build           the build tree
#
# Programs that start programs need a kernel that runs such files by the emulator: tests have a user namespace with a
# binfmt_misc of its own (Linux 6.7), component tests also a root of arm64. Nothing is registered or mounted outside.
# On older kernels the emulator is called by name, which suffices for most unit tests. The compiler comes from
# scripts/setup.sh aarch64. On Debian 12.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)

# Packages that the tests need besides the -dev packages that setup.sh names.
packages="libc6-dev gcc bash dash coreutils util-linux procps sed grep mawk findutils libc-bin python3 python3-pytest"

# Tests that cannot pass here. The emulator handles every signal itself, and lacks openat2(2).
expected=(
    "host_proc: a_handler_is_seen_when_it_is_installed"
    "host_proc: runtimes_carry_the_version_of_their_package"
    "host_proc: a_process_leads_to_nothing_outside_its_root"
)
component_tests=(tests/component/test_tided.py tests/component/test_startup.py tests/component/test_lib.py
    tests/component/test_cli_run.py tests/component/test_processor.py)
deselected="c++ or pip" # no compiler of C++ there, no registry
# Functions of tests/system/test_live.py.
tensorflow_tests="backend_says or k_of_8 or grows_back or inter_op_follows"

say() { printf 'check-aarch64: %s\n' "$*"; }
die() { printf 'check-aarch64: %s\n' "$*" >&2; exit 1; }

make_root() {
    local wanted names apt deb link
    # shellcheck disable=SC2046,SC2086 # lists of names
    names=$(printf '%s\n' $packages $(sed -nE '/^(build|check)_packages=/,/"$/p' "$repo/scripts/setup.sh" |
        grep -oE '\blib[a-z0-9.+-]+-dev\b' | grep -v libomp) | sort -u)
    wanted=$(sha256sum <<<"root 1 $names")
    [ "$(cat "$dir/root.stamp" 2>/dev/null)" != "$wanted" ] || return 0
    say "unpacking Debian's packages for arm64 in $dir/root, once"
    rm -rf "$dir/root" "$dir/etc" "$dir/apt"
    mkdir -p "$dir"/apt/{lists,cache/archives}/partial "$dir"/root/usr/{bin,sbin,lib}
    : >"$dir/apt/status"
    # Debian's archives as apt has them here, and nobody else's.
    apt-get indextargets --format 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | sort -u >"$dir/apt/sources.list"
    apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::Etc::sourcelist=$dir/apt/sources.list"
        -o Dir::Etc::sourceparts=- -o "Dir::State=$dir/apt" -o "Dir::State::status=$dir/apt/status"
        -o "Dir::Cache=$dir/apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false)
    "${apt[@]}" update
    # shellcheck disable=SC2086 # a list of names
    "${apt[@]}" -y --no-install-recommends --download-only install $names
    for link in bin sbin lib; do
        ln -s "usr/$link" "$dir/root/$link"
    done
    for deb in "$dir"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -C "$dir/root" -x --keep-directory-symlink --no-same-owner \
            --exclude './usr/share/doc' --exclude './usr/share/man' --exclude './usr/share/locale'
    done
    rm -rf "$dir/apt/cache"
    # The emulator looks for every path below root/ first: only what shall come from there may be there.
    mv "$dir/root/etc" "$dir/etc"
    find "$dir/root" -mindepth 1 -maxdepth 1 -type d ! -name usr -exec rm -rf {} +
    find "$dir/root/usr" -type l -lname '/*' | while read -r link; do
        deb=$dir/root$(readlink "$link")
        [ ! -e "$deb" ] || ln -sfrn "$deb" "$link"
    done
    # Files that maintainer scripts would have made.
    [ -e "$dir/root/usr/bin/sh" ] || ln -s dash "$dir/root/usr/bin/sh"
    ln -sf mawk "$dir/root/usr/bin/awk"
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$dir/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$dir/etc/group"
    printf '127.0.0.1 localhost\n' >"$dir/etc/hosts"
    printf 'passwd: files\ngroup: files\nhosts: files\n' >"$dir/etc/nsswitch.conf"
    echo "$wanted" >"$dir/root.stamp"
}

# Static, since it also runs where its own libraries are not.
find_emulator() {
    local found
    [ ! -x "$dir/emulator" ] || return 0
    found=$(command -v qemu-aarch64-static || true)
    if [ -z "$found" ]; then
        rm -rf "$dir/qemu"
        mkdir -p "$dir/qemu"
        (cd "$dir/qemu" && { apt-get -qq -o APT::Sandbox::User=root download qemu-user-static ||
            die "no qemu-user-static: apt-get update?"; } && dpkg-deb -x qemu-user-static_*.deb . && rm ./*.deb)
        found=$dir/qemu/usr/bin/qemu-aarch64-static
    fi
    cp "$found" "$dir/emulator"
    rm -rf "$dir/qemu"
}

build() {
    local headers
    # The newer Eigen, where an environment with TensorFlow is there: the agent's hooks on a real pool.
    headers=$(dirname "${TIDE_PYTHON_TF221:-$repo/.venv/bin/python}")/..
    headers=$(compgen -G "$headers/lib/python3*/site-packages/tensorflow/include" | head -n 1 || true)
    if [ ! -f "$dir/build/build.ninja" ]; then
        printf "[constants]\nroot = '%s'\nrunner = ['%s']\n" "$dir/root" "$dir/run" >"$dir/here.ini"
        cat >"$dir/run" <<END
#!/bin/sh
# Runs a program of aarch64; where the kernel can, by itself, see inside() of the script.
[ -z "\$TIDE_AARCH64" ] || exec "\$@"
exec "$dir/emulator" -L "$dir/root" "\$@"
END
        chmod +x "$dir/run"
        meson setup "$dir/build" "$repo" --cross-file "$repo/dist/cross/aarch64.ini" --cross-file "$dir/here.ini" --werror \
            -Deigen-headers="${headers:+$(realpath "$headers")}"
    fi
    ninja -C "$dir/build"
}

# As scripts/check.py counts: each function of cmocka, and other programs as one.
run_units() {
    local space=(in_space host)
    if ! in_space host true; then
        say "older than Linux 6.7: unit tests that start programs of their own fail"
        space=()
    fi
    rm -f "$dir/build/meson-logs/testlog.json"
    "${space[@]}" meson test -C "$dir/build" --no-rebuild --timeout-multiplier 30 || true
    /usr/bin/python3 - "$repo/scripts" "$dir" "${expected[@]}" <<'END' || failed=1
import pathlib
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import check
check.OUT = pathlib.Path(sys.argv[2])
found, expected = check.meson_results("build"), set(sys.argv[3:])
failed = {name.split(" / ")[-1] for name in found.names}
for name in sorted(failed - expected):
    print("failed:", name)
for name in sorted(expected - failed):
    print("passed, but is listed as one that cannot:", name)
print(f"unit tests: {found.passed} passed, {len(failed - expected)} failed, {found.skipped + len(failed & expected)} skipped")
sys.exit(failed != expected)
END
}

# In a user namespace of its own, where this process is root and the kernel runs files of aarch64 by the emulator: runs
# a command on this machine's files, to which the libraries of arm64 are added (host), or in a root of arm64 with the
# repository where it is (arm64). It is not the first process there: that one is nobody's job.
inside() {
    local where=$1 view=$dir/view folder
    shift
    mkdir -p "$dir/binfmt" "$view"
    mount -t binfmt_misc none "$dir/binfmt"
    printf '%s' ":aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$dir/emulator:PF" \
        >"$dir/binfmt/register"
    export TIDE_AARCH64=1 QEMU_CPU=neoverse-n1
    if [ "$where" = host ]; then
        mount -t overlay none -o "lowerdir=/usr/lib:$dir/root/usr/lib" /usr/lib
        mount -t proc proc /proc
        "$@"
        return
    fi
    mount -t tmpfs none "$view"
    mkdir -p "$view"/{usr,etc,proc,sys,dev,tmp,run,root,var/tmp} "$view$repo"
    ln -s usr/bin usr/sbin usr/lib "$view"
    mount --rbind "$dir/root/usr" "$view/usr"
    mount --rbind "$dir/etc" "$view/etc"
    for folder in sys dev; do
        mount --rbind "/$folder" "$view/$folder"
    done
    mount -t proc proc "$view/proc"
    mount --rbind "$repo" "$view$repo"
    cd "$view"
    chroot . /usr/bin/env -i PATH=/usr/bin:/usr/sbin HOME=/root LC_ALL=C.UTF-8 TMPDIR=/tmp TIDE_AARCH64=1 QEMU_CPU=$QEMU_CPU \
        PYTHONDONTWRITEBYTECODE=1 TIDE_TF_PYTHONS=/usr/bin/python3 TIDE_BUILD_DIR="$dir/build" \
        TIDE_TEST_SLOWNESS="${TIDE_TEST_SLOWNESS:-4}" /bin/sh -c 'cd "$1" && shift && exec "$@"' sh "$repo" "$@"
}

# With the users of this machine as far as root may map them.
in_space() {
    local space=(unshare --user --map-root-user) keeper= status=0
    if [ "$(id -u)" = 0 ]; then
        unshare --user sleep infinity &
        keeper=$!
        while [ "$(readlink "/proc/$keeper/ns/user")" = "$(readlink /proc/self/ns/user)" ]; do
            sleep 0.01
        done
        echo 0 0 65536 >"/proc/$keeper/uid_map"
        echo 0 0 65536 >"/proc/$keeper/gid_map"
        space=(nsenter --user --target "$keeper" unshare)
    fi
    "${space[@]}" --mount --pid --fork --kill-child "$0" --inside "$@" || status=$?
    [ -z "$keeper" ] || kill "$keeper"
    return $status
}

has_root() {
    in_space arm64 uname -m | grep -qx aarch64 && return
    say "no $1: they need Linux 6.7, where a user namespace has a binfmt_misc of its own"
    return 1
}

run_tests() {
    in_space arm64 python3 -m pytest -q -rfs -p no:cacheprovider "$@" || failed=1
}

run_components() {
    has_root "component tests" || return 0
    in_space arm64 "$dir/build/tide" --version || failed=1
    run_tests "${component_tests[@]}" -k "not ($deselected)"
}

# The wheel for aarch64 of the version that .venv has.
run_tensorflow() {
    local to=$dir/root/usr/local/lib/python3.11/dist-packages platform platforms=()
    has_root "tests with TensorFlow" || return 0
    sed -nE 's/^([a-z0-9.-]+==[0-9][^ ]*).*/\1/p' "$repo/requirements/tf221.txt" | sed 's/^tensorflow-cpu/tensorflow/' >"$dir/pins"
    if [ ! -e "$to/tensorflow" ]; then
        for platform in manylinux2014 manylinux_2_17 manylinux_2_24 manylinux_2_26 manylinux_2_27 manylinux_2_28 manylinux_2_34; do
            platforms+=(--platform "${platform}_aarch64")
        done
        python3 -m pip install -q --disable-pip-version-check --no-compile --only-binary :all: "${platforms[@]}" --implementation cp \
            --python-version 3.11 --abi cp311 --abi abi3 --abi none --target "$to" -c "$dir/pins" tensorflow
    fi
    TIDE_TEST_SLOWNESS=20 run_tests tests/system/test_live.py -k "$tensorflow_tests"
}

dir=$repo/build-check/aarch64
failed=0
if [ "${1:-}" = --inside ]; then # by in_space() alone, whose user namespace has fewer users
    ! grep -q ' 4294967295$' /proc/self/uid_map || die "--inside is the script's own"
    shift
    inside "$@"
    exit
fi
mkdir -p "$dir"
command -v aarch64-linux-gnu-gcc >/dev/null || die "no aarch64-linux-gnu-gcc: scripts/setup.sh aarch64"
make_root
find_emulator
[ $# -gt 0 ] || set -- build unit component
for word; do
    case $word in
    build) build ;;
    unit) run_units ;;
    component) run_components ;;
    tensorflow) run_tensorflow ;;
    *) die "unknown word '$word': build, unit, component or tensorflow" ;;
    esac
done
exit $failed
