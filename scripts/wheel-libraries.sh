#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Static libraries for programs that run with glibc 2.28, and a compiler for them (zig's, from PyPI).
#
#   scripts/wheel-libraries.sh      prints the folder, which has cc, lib/pkgconfig
#
# libsystemd, libmicrohttpd (without TLS) and libsmartcols are compiled from Debian's source packages, pinned below.
# It takes jansson, inih, ncurses and SQLite as archives of Debian's -dev packages: their undefined symbols
# have no version yet, so they are linked against glibc 2.28, too. Two to five minutes, once.
set -euo pipefail
sources=(
    "libmicrohttpd 796e7e217a4802679fcac667a4e98501c53185dcf50ca0583870e84192620131  libmicrohttpd_0.9.75.orig.tar.xz"
    "systemd 08a54a6c4d4cf969fc025eaa8922a55d6bc458100c242510b56c96e7d72af1c5  systemd_252.39.orig.tar.gz"
    "util-linux 60492a19b44e6cf9a3ddff68325b333b8b52b6c59ce3ebd6a0ecaa4c5117e84f  util-linux_2.38.1.orig.tar.xz"
)
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/threadtide/wheel
dir=$cache/$(cat "$0" "$root/requirements/wheel-cc.txt" | sha256sum | cut -c 1-16)
mkdir -p "$dir"
exec 9>"$cache/lock"
flock 9
[ ! -e "$dir/done" ] || { echo "$dir"; exit; }
for tool in gperf; do command -v $tool >/dev/null || { echo "wheel-libraries: scripts/setup.sh build wheel-old" >&2; exit 1; }; done
rm -rf "$dir" && mkdir -p "$dir"/{lib/pkgconfig,include/sys,include/libsmartcols,src,apt/parts,apt/{lists,cache}/partial,apt/cache/archives/partial}
build() {
python3 -m venv "$dir/zig"
"$dir/zig/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$root/requirements/wheel-cc.txt"
zig=$(echo "$dir"/zig/lib/python3*/site-packages/ziglang/zig)
# meson 1.0 does not know zig's linker, which is LLD; -dM goes to clang, which does not know the suffix; systemd preprocesses
# headers of the system.
cat >"$dir/cc" <<END
#!/bin/sh
glibc=.2.28
for word; do
    case \$word in
    -Wl,--version) echo 'LLD 20.0.0 (compatible with GNU linkers)'; exit 0 ;;
    -dM) glibc= ;;
    -E) pre=1 ;;
    -include) inc=1 ;;
    esac
done
[ -n "\$pre" ] && [ -n "\$inc" ] && exec gcc "\$@"
exec "$zig" cc -target x86_64-linux-gnu\$glibc "\$@" -Wno-error -Wno-incompatible-pointer-types-discards-qualifiers
END
chmod +x "$dir/cc"

# The installer of Debian 12 writes sources.list, images for containers and clouds write *.sources.
for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || sed 's/^Types: .*/Types: deb-src/' "$file" >"$dir/apt/parts/${file##*/}"
done
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -e "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >"$dir/apt/parts/$(basename "$file" .list)-lines.list"
done
apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$dir/apt/parts"
    -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache")
"${apt[@]}" update
cd "$dir/src"
for source in "${sources[@]}"; do
    "${apt[@]}" source --download-only "${source%% *}"
    echo "${source#* }" | sha256sum -c
    tar -xf "${source##* }"
done

export CC=$dir/cc CFLAGS="-O2 -fPIC"
(cd libmicrohttpd-*/ && ./configure -q --host=x86_64-linux-gnu --disable-https --disable-shared --disable-doc --disable-examples \
    --disable-curl && make -j2 -C src/microhttpd libmicrohttpd.la &&
    cp src/microhttpd/.libs/libmicrohttpd.a "$dir/lib" && cp src/include/microhttpd.h "$dir/include")
# Both this and libsystemd have strv_*, which differ: only scols_* stay visible.
(cd util-linux-*/ && ./configure -q --host=x86_64-linux-gnu --disable-all-programs --enable-libsmartcols --disable-shared --enable-static \
    --disable-nls --without-systemd --without-python --disable-asciidoc --without-ncurses --without-ncursesw --without-tinfo &&
    make -j2 libsmartcols.la && ld -r --whole-archive .libs/libsmartcols.a -o scols.o &&
    objcopy --wildcard --keep-global-symbol='scols_*' scols.o && ar rcs "$dir/lib/libsmartcols.a" scols.o &&
    cp libsmartcols/src/libsmartcols.h "$dir/include/libsmartcols")
unset CFLAGS
off=()
cd systemd-*/
for option in gcrypt gnutls openssl lz4 xz zstd zlib bzip2 acl selinux seccomp pam kmod audit pcre2 glib dbus libidn2 libidn \
    libiptc libcurl libcryptsetup p11kit libfido2 tpm2 elfutils qrencode pwquality xkbcommon microhttpd apparmor polkit blkid fdisk; do
    ! grep -q "^option('$option'" meson_options.txt || off+=("-D$option=false")
done
mkdir -p "$dir/capability/sys" && cp /usr/include/sys/capability.h "$dir/capability/sys"
meson setup -Dmode=release -Dstatic-libsystemd=pic -Dtests=false -Dman=false "${off[@]}" "-Dc_args=-I$dir/capability" \
    --buildtype=release b
ninja -C b -j3 version.h
ninja -C b -j3 libsystemd.a
cp b/libsystemd.a "$dir/lib"

cd "$dir"
cp -rL /usr/include/{jansson.h,jansson_config.h,ini.h,sqlite3.h,systemd,gnutls,ncursesw,curses.h,ncurses.h,ncurses_dll.h,unctrl.h} include
cp -rL /usr/include/x86_64-linux-gnu/curl include
cp /usr/lib/x86_64-linux-gnu/lib{jansson,inih,ncursesw,tinfo,sqlite3}.a lib
pc() { printf 'Name: %s\nDescription: static\nVersion: 1\nCflags: -I%s/include\nLibs: %s\n' "$1" "$dir" "$2" >"lib/pkgconfig/$1.pc"; }
pc jansson "$dir/lib/libjansson.a"
pc inih "$dir/lib/libinih.a"
pc ncursesw "$dir/lib/libncursesw.a $dir/lib/libtinfo.a"
pc smartcols "$dir/lib/libsmartcols.a"
pc sqlite3 "$dir/lib/libsqlite3.a -lm -ldl -lpthread"
pc libmicrohttpd "$dir/lib/libmicrohttpd.a -lpthread"
pc libsystemd "$dir/lib/libsystemd.a -lrt -lpthread"
# Headers alone: libcurl is loaded late, the others are for programs that are not in the wheel.
for name in libcurl gnutls libcrypt yaml-0.1; do pc $name ""; done
rm -rf src apt
touch done
}
# A step that fails ends it, which `build || …` would not do.
set +e
(set -e; build) >"$dir/log" 2>&1
status=$?
set -e
[ $status = 0 ] || { tail -n 30 "$dir/log" >&2; exit 1; }
echo "$dir"
