#!/usr/bin/env bash
# Run every lint, all of them even where one fails, and say which failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin
failed=()

check() {
    echo "lint: $*"
    "$bin/$@" || failed+=("$1 ${2:-}")
}

check ruff check --quiet .
check ruff format --check --quiet .
check mypy
check lint-imports --no-logo

if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: failed: ${failed[*]}" >&2
    exit 1
fi
echo "lint: all passed"
