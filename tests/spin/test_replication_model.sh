#!/bin/bash
# Explores tests/spin/replication.pml: what docs/replication.md promises holds in every order of steps,
# for one replica and two, up to two lost nodes, and a node that is drained. With any one of the
# protocol's guards left out it does not hold, so the check can fail. The model is compiled once; the
# environment chooses the case.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
if ! command -v spin >/dev/null; then
    echo "skipped: spin is not installed"
    exit 77
fi

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
n_wrong=0
if ! (cd "$work" && spin -a "$OLDPWD/tests/spin/replication.pml" &&
    gcc -O1 -w -DSAFETY -DCOLLAPSE -DMEMLIM=2000 -DVECTORSZ=2048 -o pan pan.c) >"$work/log" 2>&1; then
    cat "$work/log"
    exit 1
fi

# Explores a case. $1 is what must be found: "sound", or words of what goes wrong; $2 the guard that is
# left out, by its number in the model, or 0; then replicas, losses, the Adds of each worker, and
# whether worker 2 tells its clock and gets, whether nodes hear of a loss ahead of CLOSE, and whether
# node 0 is drained, with copies of the part that are made first.
explore()
{
    local expected=$1 found
    local -x WITHOUT=$2 REPLICAS=$3 LOSSES=$4 ADDS_0=$5 ADDS_1=$6 ADDS_2=$7 WITH_CLOCK=$8 WITH_GET=$9
    local -x WITH_NEWS=${10:-0} DRAINS=${11:-0} COPIES=${12:-0}

    (cd "$work" && ./pan -m100000) >"$work/log" 2>&1
    if grep -q 'Search not completed' "$work/log" && ! grep -q 'errors: [1-9]' "$work/log"; then
        found=unfinished
    elif grep -q 'errors: 0' "$work/log"; then
        found=sound
    else
        found=$(grep -m1 '^pan:1: ' "$work/log")
    fi
    echo "without $WITHOUT, replicas $REPLICAS, losses $LOSSES, adds $ADDS_0 $ADDS_1 $ADDS_2, clock $WITH_CLOCK," \
        "get $WITH_GET, news $WITH_NEWS, drain $DRAINS, copies $COPIES: $found$(grep -o ' [0-9]* states, stored' "$work/log")"
    if [[ $found != *"$expected"* ]]; then
        cat "$work/log"
        echo "FAILED: expected $expected"
        n_wrong=$((n_wrong + 1))
    fi
}

explore sound 0 2 2 1 0 1 0 1
explore sound 0 2 2 0 0 1 1 0
explore sound 0 1 2 0 1 1 0 1
explore sound 0 1 2 0 0 2 1 0
explore sound 0 2 2 0 0 1 0 0 1

explore '(a1==(node[self].had[from]+1))' 1 2 2 1 0 1 0 1     # an Add is applied twice
explore '>=node[j].acked)' 2 2 2 1 0 1 0 1                   # an acknowledged Add is lost
explore '>=shown[j])' 3 2 2 1 0 1 0 1                        # an Add that was shown is lost
explore '(node[self].log[a1]==a2)' 4 2 2 1 0 1 0 1           # replicas differ
explore '(node[self].log[a1]==a2)' 5 2 2 1 0 1 0 1           # replicas differ
explore '(a1==node[self].n)' 6 2 2 1 0 1 0 1                 # a replica misses an input
explore '(node[self].had[from]==adds[from])' 7 2 2 0 0 1 1 0 # a clock is early
explore 'invalid end state' 8 2 2 1 0 1 0 1                  # a worker waits for ever
explore '>=needed[0])' 9 1 1 0 1 0 0 1                       # a deposed primary answers a Get

# Node 0 is drained.
explore sound 0 1 1 0 0 1 0 1 0 1 1
explore sound 0 1 2 0 0 1 0 0 0 1 1
explore sound 0 1 1 1 0 0 0 0 0 1 1
explore 'invalid end state' 10 2 0 1 0 0 0 0 0 1 0          # an Add comes when the part is handed over
explore 'invalid end state' 11 2 0 0 0 1 0 0 0 1 0          # nobody waits for the last input
explore '>=needed[0])' 12 2 0 0 1 0 0 1 0 1 0               # who has handed over answers a Get
explore '>=needed[0])' 13 2 0 0 1 0 0 1 0 1 0               # maps open too soon
explore 'invalid end state' 14 2 1 0 0 1 0 0 0 1 0          # a lost answer is not asked for again
explore '(node[self].log[a1]==a2)' 15 1 2 0 0 1 0 0 0 1 1   # a copy is listed too soon
explore '(a1<=node[self].n)' 16 1 2 0 0 1 0 0 0 1 1         # a copy that was dropped counts
[ "$n_wrong" -eq 0 ]
