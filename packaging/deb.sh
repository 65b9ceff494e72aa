#!/bin/bash
# Builds dist/sglang-watchdog_VERSION_amd64.deb for the Debian release that this runs on: the program in a virtual environment of its
# own below /usr/lib/sglang-watchdog, made of the pinned dependencies (packaging/requirements.txt) and the distribution's Python.
#
# Needs no root. Of the network it needs what pip needs. SOURCE_DATE_EPOCH (default: the last commit) dates all files.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "deb: $*" >&2; exit 1; }

PYTHON=/usr/bin/python3
HOME_DIR=/usr/lib/sglang-watchdog
BUILD=$PWD/build/deb
ROOT=$BUILD/root
LOG=$BUILD/log
command -v dpkg-deb >/dev/null || fail "this is no Debian: dpkg-deb is missing"
"$PYTHON" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  fail "needs the distribution's Python 3.11 or later with venv: apt-get install python3-venv python3-dev libsystemd-dev gcc pkg-config"
rm -rf "$BUILD"; mkdir -p "$ROOT" dist
umask 022

VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
ARCH=$(dpkg --print-architecture)
MINOR=$("$PYTHON" -c 'import sys; print(sys.version_info.minor)')
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_CACHE_DIR=$PWD/.cache/pip

step() { local what=$1; shift; echo "  $what …"; "$@" >>"$LOG" 2>&1 || { tail -n 20 "$LOG" >&2; fail "$what failed; all of it is in $LOG"; }; }

# The dependencies as wheels, checked against their hashes; systemd-python is compiled here.
step "build tools" "$PYTHON" -m venv "$BUILD/tools"
PIP=("$BUILD/tools/bin/python" -m pip)
step "build tools" "${PIP[@]}" install --require-hashes -r packaging/requirements-build.txt
step "dependencies" "${PIP[@]}" wheel --no-build-isolation --require-hashes -r packaging/requirements.txt -w "$BUILD/wheels"
step "sglang-watchdog" "${PIP[@]}" wheel --no-deps --no-build-isolation . -w "$BUILD/wheels"

# The environment. Its scripts and settings must not name the place where it was built.
step "environment" "$PYTHON" -m venv --without-pip "$ROOT$HOME_DIR"
step "environment" "${PIP[@]}" --python "$ROOT$HOME_DIR/bin/python3" install --no-index --no-deps --no-compile "$BUILD"/wheels/*.whl
SITE=$ROOT$HOME_DIR/lib/python3.$MINOR/site-packages
find "$ROOT$HOME_DIR/bin" -mindepth 1 ! -name 'python*' ! -name sglang-watchdog -delete
ln -sfn "/usr/bin/python3.$MINOR" "$ROOT$HOME_DIR/bin/python3"
sed -i "1s|.*|#!$HOME_DIR/bin/python3|" "$ROOT$HOME_DIR/bin/sglang-watchdog"
sed -i '/^command = /d' "$ROOT$HOME_DIR/pyvenv.cfg"
rm -rf "$ROOT$HOME_DIR/include" "$ROOT$HOME_DIR/lib64" "$ROOT$HOME_DIR/.gitignore"
# Not needed at run time: sources of extensions, tests, caches, and where pip found the wheels.
find "$SITE" \( -name '*.c' -o -name '*.h' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.cpp' \) -type f -delete
find "$SITE" -type d \( -name tests -o -name test -o -name __pycache__ -o -name .hash \) -prune -exec rm -rf {} +
find "$SITE" -name direct_url.json -delete
find "$SITE" \( -name '*.so' -o -name '*.so.*' \) -type f -exec strip --strip-unneeded {} +
find "$SITE" -type f -exec chmod 644 {} +

DOC=$ROOT/usr/share/doc/sglang-watchdog
install -d "$ROOT/usr/bin" "$ROOT/usr/share/man/man1" "$ROOT/usr/share/lintian/overrides" "$DOC/examples"
ln -s ../lib/sglang-watchdog/bin/sglang-watchdog "$ROOT/usr/bin/sglang-watchdog"
install -Dm644 -t "$ROOT/usr/lib/systemd/system" units/sglang-watchdog.service units/sglang-watchdog-stacks{.socket,@.service}
install -Dm644 units/sglang-watchdog.sysusers "$ROOT/usr/lib/sysusers.d/sglang-watchdog.conf"
install -Dm644 packaging/completions/sglang-watchdog.bash "$ROOT/usr/share/bash-completion/completions/sglang-watchdog"
install -m644 config/*.toml units/server.conf units/sglang-watchdog.rules packaging/prometheus/*.rules.yml packaging/grafana/*.json "$DOC/examples"
install -d "$DOC/examples/profiles"
install -m644 config/profiles/*.toml "$DOC/examples/profiles"
install -m644 docs/*.md "$DOC"
install -m644 -t "$DOC" packaging/debian/copyright packaging/debian/README.Debian
install -m644 packaging/debian/overrides "$ROOT/usr/share/lintian/overrides/sglang-watchdog"
"$BUILD/tools/bin/python" -m pip --python "$ROOT$HOME_DIR/bin/python3" list --format=freeze 2>/dev/null | grep -v '^sglang' > "$DOC/dependencies.txt" || true
"$ROOT$HOME_DIR/bin/python3" -P packaging/man/write_man.py "$VERSION" "$SOURCE_DATE_EPOCH" "$ROOT/usr/share/man/man1/sglang-watchdog.1"
gzip -9n "$ROOT/usr/share/man/man1/sglang-watchdog.1"
{
  echo "sglang-watchdog ($VERSION) unstable; urgency=medium"; echo
  echo "  * Release $VERSION; what is new is in the project's CHANGELOG.md."; echo
  echo " -- sglang-watchdog <sglang-watchdog@localhost.localdomain>  $(date -Rud "@$SOURCE_DATE_EPOCH")"
} | gzip -9n > "$DOC/changelog.gz"
find "$ROOT" -name __pycache__ -prune -exec rm -rf {} +

install -d "$ROOT/DEBIAN"
install -m755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$ROOT/DEBIAN"
SIZE=$(du -sk --exclude=DEBIAN "$ROOT" | cut -f1)
sed -e "s/@VERSION@/$VERSION/; s/@ARCH@/$ARCH/; s/@SIZE@/$SIZE/; s/@MINOR@/$MINOR/; s/@NEXT@/$((MINOR + 1))/" packaging/debian/control > "$ROOT/DEBIAN/control"
(cd "$ROOT" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
find "$ROOT" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
DEB=dist/sglang-watchdog_${VERSION}_$ARCH.deb
step "package" dpkg-deb --root-owner-group -Zxz --build "$ROOT" "$DEB"
echo "deb: $DEB ($(du -h "$DEB" | cut -f1))"
