#!/bin/bash
# run.sh deb|containers [SUITE]: builds the package for a Debian suite (default: the one that this runs on), makes a fresh root of
# it, and runs the tests there. Needs root, the network, and .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:?deb or containers}
# shellcheck disable=SC1091
own=$(. /etc/os-release && echo "$VERSION_CODENAME")
suite=${2:-$own}
for tool in debootstrap lintian; do
  command -v "$tool" >/dev/null || apt-get -q -y install --no-install-recommends "$tool"
done
case $what in
  deb) root=.cache/roots/$suite; packages=() ;;
  containers) root=.cache/roots/containers-$suite; packages=(podman crun runc conmon docker.io)
    [ "$suite" = bookworm ] || packages+=(docker-cli) ;;
  *) echo "run.sh: deb or containers" >&2; exit 2 ;;
esac
if [ "$suite" = "$own" ]; then
  packaging/deb.sh
  DEB=$(ls -t dist/*.deb | head -n 1)
else
  tests/install/build_deb.sh "$suite"
  DEB=$(ls -t "dist/$suite"/*.deb | head -n 1)
fi
tests/install/clean_root.sh "$suite" "$root" "${packages[@]}"
TMPDIR=$(mktemp -d); trap 'rm -rf "$TMPDIR"' EXIT
export DEB TMPDIR ROOT="$root"
.venv/bin/python -m pytest "tests/install/install_$what.py"
