#!/bin/sh
# Makes the virtual environment from the lock file, once for each state of the lock file, and compiles
# the visitors' words. Needs nothing but Python 3.11 or newer; no compiler.
set -eu
cd "$(dirname "$0")/.."

say() { echo "corvus: $*" >&2; }

# Here, and not when Corvus starts: the user that it runs as need not own the code.
compile_words() {
    for words in locale/*/LC_MESSAGES/django.po; do
        if [ -e "$words" ] && [ ! "${words%.po}.mo" -nt "$words" ]; then
            .venv/bin/python -m queueing.catalogues
            return
        fi
    done
}

stamp=.venv/.locked
wanted=$(cksum requirements.lock)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    compile_words
    exit 0
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    say "Python 3.11 or newer is needed and was not found; PYTHON=/path/to/python make … names one."
    exit 1
fi

if [ ! -x .venv/bin/python ]; then
    say "making the virtual environment in .venv"
    if ! "$python" -m venv .venv >.venv-output 2>&1; then
        if grep -q ensurepip .venv-output; then
            say "this Python cannot make virtual environments: install the package python3-venv."
        else
            cat .venv-output >&2
        fi
        rm -rf .venv .venv-output
        exit 1
    fi
    rm -f .venv-output
fi

say "installing the locked packages (once)"
if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --require-hashes --only-binary :all: -r requirements.lock; then
    say "the packages could not be installed: see above."
    exit 1
fi
echo "$wanted" >"$stamp"
compile_words
