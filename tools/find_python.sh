#!/usr/bin/env bash
# Print the path of a Python >= 3.12 that can make a virtual environment: from $DRYSTONE_PYTHON, PATH, pyenv or uv.
# Exit 1 with what was looked at and what to install where there is none.
set -euo pipefail

looked=()

usable() { # the interpreter itself is asked: a pyenv shim exists for versions that are not active and then fails
    "$1" -c 'import sys, sysconfig, venv, ensurepip
sys.exit(not ((3, 12) <= sys.version_info[:2] < (4, 0)) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' >/dev/null 2>&1
}

try() {
    local path
    path=$(command -v "$1" 2>/dev/null) || return 1
    looked+=("$path")
    if usable "$path"; then
        # the real interpreter, not a shim: a virtual environment made from a shim breaks when pyenv's version changes
        "$path" -c 'import sys; print(sys.executable)'
        exit 0
    fi
    return 1
}

if [ -n "${DRYSTONE_PYTHON:-}" ]; then
    try "$DRYSTONE_PYTHON" || {
        echo "find_python: DRYSTONE_PYTHON=$DRYSTONE_PYTHON is no Python >= 3.12 with the venv module" >&2
        exit 1
    }
fi

# the versions that the pinned constraints are tested with come first
versions="3.13 3.12 3.14"
for name in python3.13 python3.12 python3.14 python3 python; do
    try "$name" || true
done

for root in "${PYENV_ROOT:-}" "$(pyenv root 2>/dev/null || true)" "${HOME:-}/.pyenv"; do
    [ -n "$root" ] && [ -d "$root/versions" ] || continue
    for version in $versions; do
        for bin in "$root/versions/$version".*/bin/python; do
            [ -x "$bin" ] && { try "$bin" || true; }
        done
    done
done

if command -v uv >/dev/null 2>&1; then
    looked+=("uv")
    found=$(uv python find '>=3.12' 2>/dev/null || true)
    [ -n "$found" ] || { uv python install 3.13 >&2 && found=$(uv python find '>=3.12' 2>/dev/null || true); }
    [ -n "$found" ] && { try "$found" || true; }
fi

{
    echo "find_python: no Python >= 3.12 with the venv module was found."
    echo "  looked at: ${looked[*]:-nothing: there is no python on PATH}"
    echo "  also in:   pyenv's versions folder, and uv"
    echo "  remedy:    install one (for example 'pyenv install 3.13', 'uv python install 3.13' or the package python3.12-venv),"
    echo "             or name one: DRYSTONE_PYTHON=/path/to/python make test"
} >&2
exit 1
