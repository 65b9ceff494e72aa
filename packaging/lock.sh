#!/bin/bash
# Pins the newest dependencies that pyproject.toml allows, with the hashes of all their files, for every Python from 3.11 on.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_CACHE_DIR=$PWD/.cache/pip UV_CACHE_DIR=$PWD/.cache/uv
[ -x .cache/lock/bin/uv ] || { python3 -m venv .cache/lock; .cache/lock/bin/pip install -q uv; }

# pin FILE ARGUMENTS...: writes packaging/FILE. The header of uv is left out: it would repeat this machine's settings.
pin() {
  local file=$1; shift
  .cache/lock/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade "$@" \
    -o "packaging/$file"
}
pin requirements.txt pyproject.toml
pin requirements-build.txt --group pyproject.toml:build
pin requirements-external.txt --group pyproject.toml:external
pin requirements-dev.txt --group pyproject.toml:dev pyproject.toml
