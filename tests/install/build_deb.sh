#!/bin/bash
# build_deb.sh SUITE: builds the package for a Debian suite in a fresh root of it, as dist/SUITE/*.deb. For the release that this
# runs on `make deb` does, without a root. Needs root, debootstrap, and the network for Debian's packages and pip.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=${1:?a suite}; root=$PWD/.cache/roots/build-$suite
tests/install/clean_root.sh "$suite" "$root" python3-venv python3-dev libsystemd-dev gcc libc6-dev pkg-config binutils ca-certificates
# pip's settings of this machine hold there too.
for file in /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  if [ -e "$file" ]; then install -Dm644 "$file" "$root$file"; fi
done
rm -rf "$root/src"; mkdir -p "$root/src" "$root/proc" "dist/$suite"
{ git ls-files -z --cached --others --exclude-standard | while IFS= read -rd '' file; do
  if [ -e "$file" ]; then printf '%s\0' "$file"; fi
done; } | tar -c --null --no-recursion -T - | tar -x -C "$root/src"
mount -t proc proc "$root/proc"; trap 'umount "$root/proc"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) chroot "$root" /src/packaging/deb.sh
rm -f "dist/$suite"/*.deb; cp "$root"/src/dist/*.deb "dist/$suite/"
