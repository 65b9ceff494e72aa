#!/bin/bash
# Fetches what `make test-external` needs into .cache/external: Debian's prometheus and prometheus-alertmanager (unpacked, not
# installed: an installed one would start its service on this host), and Apprise in an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
into=$PWD/.cache/external
packages=(prometheus prometheus-alertmanager)

if [ ! -x "$into/root/usr/bin/promtool" ] || [ ! -x "$into/root/usr/bin/prometheus-alertmanager" ]; then
  command -v apt-get >/dev/null || { echo "external: this needs apt-get of Debian or Ubuntu" >&2; exit 1; }
  echo "external: fetching ${packages[*]} …"
  rm -rf "$into/debs" "$into/root"
  mkdir -p "$into/debs" "$into/root"
  [ "$(id -u)" != 0 ] || apt-get -q update >"$into/log" 2>&1 || { tail -n 5 "$into/log" >&2; exit 1; }
  (cd "$into/debs" && apt-get -q download "${packages[@]}") >>"$into/log" 2>&1 || { tail -n 5 "$into/log" >&2; exit 1; }
  for package in "$into"/debs/*.deb; do dpkg-deb -x "$package" "$into/root"; done
  rm -rf "$into/debs"
fi

wanted=$(sha256sum packaging/requirements-external.txt)
if [ "$(cat "$into/venv/made-from" 2>/dev/null)" != "$wanted" ]; then
  echo "external: installing Apprise …"
  rm -rf "$into/venv"
  .venv/bin/python -m venv "$into/venv"
  PIP_CACHE_DIR=$PWD/.cache/pip PIP_DISABLE_PIP_VERSION_CHECK=1 "$into/venv/bin/python" -m pip install -q --require-hashes \
    -r packaging/requirements-external.txt
  echo "$wanted" >"$into/venv/made-from"
fi
