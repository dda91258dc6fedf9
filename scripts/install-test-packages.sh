#!/bin/sh
# Sees to the programs that the tests drive: a browser, a PHP site, fonts for every language of the
# waiting page. What is missing is installed where this may install (Debian, as root or with sudo).
# With `bench` as the first argument also the load generator and the plain origin.
set -eu

say() { echo "corvus: $*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }
has_font() { has fc-list && [ -n "$(fc-list ":lang=$1" 2>/dev/null | head -n 1)" ]; }

missing=""
has chromium || missing="$missing chromium"
has php || missing="$missing php-cli"
has fc-list || missing="$missing fontconfig"
has_font ar || missing="$missing fonts-noto-core"
has_font ja || missing="$missing fonts-noto-cjk"
if [ "${1:-}" = bench ]; then
    has wrk || missing="$missing wrk"
    has nginx || missing="$missing nginx-light"
fi
[ -n "$missing" ] || exit 0

if ! has apt-get; then
    say "the tests need these programs, and this is no Debian on which to install them:$missing"
    exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
    if has sudo && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        say "the tests need packages; run: sudo apt-get install --no-install-recommends$missing"
        exit 1
    fi
fi
say "installing what the tests drive:$missing"
log=$(mktemp)
install() {
    # shellcheck disable=SC2086 - a list of names
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends $missing >"$log" 2>&1
}
if ! install; then
    $as_root apt-get update -q >>"$log" 2>&1 || true
    if ! install; then
        tail -n 15 "$log" >&2
        rm -f "$log"
        say "could not install:$missing"
        exit 1
    fi
fi
rm -f "$log"
