#!/bin/bash
# Explores tests/spin/window.pml: under the rule of the library nothing locks up, goes on without an
# end or loses room, for windows of one to three requests, BSP and SSP, one table and two, and any
# worker as the slowest. Under the rule that was there before, each window locks up, so the check can
# fail. To compile each case takes most of the time, so what is soon found is compiled the quickest way.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
if ! command -v spin >/dev/null; then
    echo "skipped: spin is not installed"
    exit 77
fi

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
n_wrong=0

# Explores the model with the definitions from the third on; $1 is what is expected of it, "sound" or
# "stuck", $2 what is looked for: "ends", states from which nothing goes on, or "cycles".
explore()
{
    local expected=$1 what=$2 found
    local -a compile=(-w -DMEMLIM=2000) run=(-m100000)

    shift 2
    case $expected in
    sound) compile+=(-Og) ;;
    stuck) compile+=(-O0 -DT_REVERSE) ;; # tickets before calls: this soon locks up
    esac
    case $what in
    ends) compile+=(-DSAFETY) ;;
    cycles)
        compile+=(-DNP)
        run+=(-l)
        ;;
    esac
    rm -f "$work"/*
    if ! (cd "$work" && spin "$@" -a "$OLDPWD/tests/spin/window.pml" && gcc "${compile[@]}" -o pan pan.c) \
        >"$work/log" 2>&1; then
        cat "$work/log"
        echo "FAILED: $* cannot be compiled"
        n_wrong=$((n_wrong + 1))
        return
    fi
    (cd "$work" && ./pan "${run[@]}") >"$work/log" 2>&1
    if ! grep -q 'errors: [0-9]' "$work/log" || grep -q 'Search not completed' "$work/log" &&
        ! grep -q 'errors: [1-9]' "$work/log"; then
        found=unfinished
    elif grep -q 'errors: 0' "$work/log"; then
        found=sound
    elif grep -q 'invalid end state (' "$work/log"; then
        found=stuck
    else
        found=wrong
    fi
    echo "$found ($what): $* $(grep -o '[0-9]* states, stored' "$work/log")"
    if [ "$found" != "$expected" ]; then
        cat "$work/log"
        echo "FAILED: expected $expected"
        n_wrong=$((n_wrong + 1))
    fi
}

for window in 1 2 3; do
    explore stuck ends -DRULE_ANSWERED -DWINDOW=$window -DITERATIONS=$((window + 1))
done
explore sound ends -DRULE_TAKEN
explore stuck ends -DRULE_ANSWERED -DWINDOW=1 -DSTALENESS=1 -DITERATIONS=3
explore sound ends -DRULE_TAKEN -DWINDOW=1 -DSTALENESS=1 -DITERATIONS=3
explore sound ends -DRULE_TAKEN -DWINDOW=2 -DPLACE=3 -DTICKETS=2
explore sound ends -DRULE_TAKEN -DWINDOW=1 -DPIECES
explore stuck ends -DRULE_ANSWERED -DWINDOW=1 -DTABLES=2 -DSTALENESS_2=1
explore sound ends -DRULE_TAKEN -DWINDOW=1 -DTABLES=2 -DSTALENESS_2=1
explore sound cycles -DRULE_TAKEN -DWINDOW=1
[ "$n_wrong" -eq 0 ]
