#!/bin/bash
# Makes the environment of this clone: the Debian packages that it builds with and that its tests need, and .venv with
# pinned dependencies and the command sglang-watchdog. Does nothing if that was done before with the same inputs.
#
#   packaging/setup.sh              make it
#   packaging/setup.sh --as-root    the same, for what also boots a private systemd: fails without root
#
# PYTHON=python3.13 chooses the interpreter (3.11 or later; default: the first one that is found).
# SYSTEM_PACKAGES=present says that the packages are there, on a distribution that this script does not know.
# Everything but the Debian packages stays inside the clone: .venv, and .cache for downloads and logs.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD_PACKAGES=(gcc libc6-dev libsystemd-dev pkg-config)
BOX_PACKAGES=(dbus iproute2 mount polkitd procps systemd util-linux)
INPUTS=(packaging/setup.sh packaging/requirements-build.txt packaging/requirements-dev.txt pyproject.toml)
LOG=.cache/setup.log
job=  # the process group that is under way

fail() { echo "setup: $*" >&2; exit 1; }

# step WHAT COMMAND...: runs a command with its output in the log, and shows that it goes on. It has a process group of its own, so
# that it can be ended with all that it began: of itself, what runs in the background of a script hears no ^C, and goes on.
step() {
  local what=$1 begun=$SECONDS; shift
  set -m
  "$@" </dev/null >>"$LOG" 2>&1 &
  job=$!
  set +m
  if [ -t 1 ]; then
    while kill -0 "$job" 2>/dev/null; do printf '\r  %s … %d s' "$what" "$((SECONDS - begun))"; sleep 1; done
    printf '\r'
  else
    echo "  $what …"
  fi
  if wait "$job"; then
    job=
    echo "  $what: done in $((SECONDS - begun)) s"
  else
    job=
    echo "  $what: failed; the end of $LOG:" >&2
    tail -n 15 "$LOG" >&2
    exit 1
  fi
}

# What is under way is asked to end and waited for (apt-get first lets dpkg finish).
interrupted() {
  trap '' INT TERM HUP
  [ ! -t 1 ] || echo >&2
  if [ -n "$job" ]; then
    kill -INT -- "-$job" 2>/dev/null || true
    while kill -0 "$job" 2>/dev/null; do wait "$job" || true; done
    echo "setup: interrupted; the next run begins anew" >&2
  else
    echo "setup: interrupted" >&2
  fi
  exit 130
}

is_usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local name
  for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if is_usable "$name"; then command -v "$name"; return; fi
  done
  return 1
}

# The packages that Debian's own interpreter needs for virtual environments and for compiling against it.
python_packages() {
  local real
  real=$("$1" -c 'import sys; print(sys.executable)' 2>/dev/null)
  case $(readlink -f "$real") in
    /usr/bin/python3.*) local version; version=$(basename "$(readlink -f "$real")"); echo "$version-venv $version-dev" ;;
  esac
}

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# Whether /etc/os-release names a distribution on which this was tried: Debian 12 or later, Ubuntu 24.04 or later.
is_known_distribution() {
  case ${ID:-} in
    debian) [ "${VERSION_ID:-99}" -ge 12 ] ;;
    ubuntu) [ "${VERSION_ID%%.*}" -ge 24 ] ;;
    *) return 1 ;;
  esac
}

# Sets `missing` to the Debian packages that are still to be installed; fails where this script may not or cannot install them.
check_packages() {
  missing=
  [ "${SYSTEM_PACKAGES:-}" != present ] || return 0
  local ID='' VERSION_ID='' PRETTY_NAME='an unknown system'
  # shellcheck disable=SC1091
  [ ! -r /etc/os-release ] || . /etc/os-release
  if ! is_known_distribution; then
    fail "$PRETTY_NAME is not known here: install Python 3.11 or later with headers and venv, gcc, pkg-config, the headers of" \
      "libsystemd, systemd, dbus, polkit, iproute2, procps and util-linux, then run: make setup SYSTEM_PACKAGES=present"
  fi
  # shellcheck disable=SC2046
  missing=$(missing_packages "${BUILD_PACKAGES[@]}" "${BOX_PACKAGES[@]}" $(python_packages "$python"))
  missing=${missing//$'\n'/ }
  [ "$(id -u)" != 0 ] || return 0
  [ -z "$missing" ] || fail "as root run: apt-get install $missing"
  [ "$needs_root" = no ] || fail "all packages are there, but this boots a private systemd: run it as root (without: make test-unit)"
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  step "package lists" apt-get -q update
  # shellcheck disable=SC2086
  step "Debian packages ($missing)" apt-get -q -y install --no-install-recommends $missing
}

make_environment() {
  export PIP_CACHE_DIR=$PWD/.cache/pip PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
  if [ ! -f .venv/made-from ] || ! is_usable .venv/bin/python; then
    rm -rf .venv                     # one that was not finished, or whose interpreter is gone
    step "virtual environment of $("$python" --version)" "$python" -m venv .venv
  fi
  rm -f .venv/made-from              # until all is done
  local install=(.venv/bin/python -m pip install --no-build-isolation)
  step "build tools" "${install[@]}" --require-hashes -r packaging/requirements-build.txt
  step "dependencies ($(grep -c == packaging/requirements-dev.txt) packages)" \
    "${install[@]}" --require-hashes -r packaging/requirements-dev.txt
  step "sglang-watchdog" "${install[@]}" --no-deps --editable .
}

# What the environment was made from; the place counts, since scripts in .venv name it.
fingerprint() { { pwd; .venv/bin/python --version; sha256sum "${INPUTS[@]}"; } 2>/dev/null | sha256sum; }

needs_root=no
[ "${1:-}" != --as-root ] || needs_root=yes

trap interrupted INT TERM HUP
mkdir -p .cache
exec 9>.cache/setup.lock
if ! flock -n 9; then                # two at once would spoil each other's environment
  echo "setup: another run makes the environment of this clone; waiting for it"
  flock 9
fi
if { [ "$needs_root" = no ] || [ "$(id -u)" = 0 ]; } && [ -f .venv/made-from ] && [ "$(cat .venv/made-from)" = "$(fingerprint)" ]; then exit 0; fi

python=$(find_python) || fail "Python 3.11 or later is needed; as root run: apt-get install python3 (or name one: make setup PYTHON=…)"
check_packages
echo "setup: making the environment in .venv (once; a few minutes on a fresh machine)"
: >"$LOG"
[ -z "$missing" ] || install_packages
make_environment
fingerprint >.venv/made-from
echo "setup: ready; the command is .venv/bin/sglang-watchdog"
