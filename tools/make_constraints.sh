#!/usr/bin/env bash
# Renew constraints.txt: install everything unpinned in a clean environment and write down what came, names and versions only.
# Made on the oldest supported Python, so that every pin exists for it; newer ones are covered by the same releases.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
base=$(DRYSTONE_PYTHON=${DRYSTONE_PYTHON:-} bash tools/find_python.sh)
"$base" -m venv "$folder/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
"$folder/venv/bin/pip" install -qq --editable ".[test,lint,bench]" hatchling editables
{
    echo "# Pinned versions of everything that tests, lint, demo and benchmarks install; made by tools/make_constraints.sh."
    "$folder/venv/bin/pip" list --format=freeze --exclude-editable | grep -viE '^(pip|setuptools|wheel|drystone)=='
} >constraints.txt
echo "constraints.txt: $(grep -c == constraints.txt) pins, made with $("$base" -V)"
