#!/usr/bin/env bash
# Build .venv with the project and the given extras, pinned by constraints.txt; do nothing where it is up to date.
#
#   tools/setup.sh EXTRA[,EXTRA…]          for example: tools/setup.sh test,lint
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extras=${1:-test,lint}
python=.venv/bin/python

# what the environment is made from; a change in any of it installs again
identity=$(cat pyproject.toml constraints.txt | cksum)

if ! "$python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then
    base=$(bash tools/find_python.sh)
    echo "setup: building .venv with $base ($("$base" -V 2>&1))"
    rm -rf .venv
    "$base" -m venv .venv
fi

stamp=.venv/drystone-$extras
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$identity" ]; then
    exit 0
fi
echo "setup: installing drystone[$extras]"
# the variable reaches the build's own environment too, the option does not
PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    "$python" -m pip install -qq --editable ".[$extras]"
echo "$identity" >"$stamp"
