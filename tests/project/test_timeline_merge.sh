#!/bin/bash
# rubato timeline merge: it joins whole files, leaves out the last line of one that is cut, and warns
# of times that need not fit.
set -uo pipefail

build_dir=${RUBATO_BUILD_DIR:-build/dev}
PATH=$(cd "$build_dir" && pwd)/bin:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

# merge EXIT-CODE EVENTS TEXT FILE...: TEXT is what it says of them; "": nothing
merge()
{
    local code=$1 events=$2 text=$3 found

    shift 3
    rubato timeline merge "$@" >out 2>err
    found=$?
    if [ "$found" -ne "$code" ]; then
        echo "test_timeline_merge: $*: exit code $found instead of $code"
        failures=$((failures + 1))
    fi
    found=$(grep -c '"ph"' out)
    if [ "$found" -ne "$events" ]; then
        echo "test_timeline_merge: $*: $found events instead of $events"
        failures=$((failures + 1))
    fi
    if [ -z "$text" ] && [ -s err ] || ! grep -qF -- "$text" err && [ -n "$text" ]; then
        echo "test_timeline_merge: $*: nothing of '$text' in: $(cat err)"
        failures=$((failures + 1))
    fi
}

event='{"ph":"X","pid":1,"tid":0,"ts":1.0,"dur":1.0,"name":"Get t","args":{"keys":5}}'
printf '[\n %s,\n%s\n]\n' "$event" "$event" >whole
merge 0 2 '' whole
merge 0 4 '' whole whole

# Cut within an event; behind a brace that is not its last; behind a line.
head -c -20 whole >within
head -c -4 whole >brace
head -c -2 whole >end
merge 0 1 'within: its last line is cut' within
merge 0 1 'brace: its last line is cut' brace
merge 0 2 'end: its end is cut' end
merge 0 3 'brace: its last line is cut' brace whole

printf '[\n %s\n]\n' "${event/\"keys\":5/\"clock\":\"the node\'s own time\"}" >own
merge 0 1 "own: its times are the node's own" own
printf '[\n %s\n]\n' "${event/Get t/\\\"clock\\\":\\\"the node\'s own time\\\"}" >named
merge 0 1 '' named

printf '[\n %s\n]\nmore\n' "$event" >behind
printf 'no event\n' >other
: >empty
merge 1 1 'behind, line 4: this is no timeline' behind
merge 1 0 'other, line 1: this is no timeline' other
merge 1 0 'empty, line 0: this is no timeline' empty
merge 1 2 'cannot read missing' missing whole

if [ "$failures" -gt 0 ]; then
    echo "test_timeline_merge: $failures failures"
    exit 1
fi
echo "test_timeline_merge: whole files and cut ones are joined"
