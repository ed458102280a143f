#!/bin/bash
# Timelines keep to the rules of the trace event format, as viewers read it: those of a run with
# tables and collectives on two nodes, and both joined. Traces that break a rule are found.
set -uo pipefail

build_dir=${RUBATO_BUILD_DIR:-build/dev}
PATH=$(cd "$build_dir" && pwd)/bin:$PATH
check=$PWD/tests/project/check-trace
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

if ! command -v /usr/bin/python3 >/dev/null; then
    echo "test_timeline_format: skipped: there is no python3"
    exit 77
fi

fail()
{
    echo "test_timeline_format: $*"
    failures=$((failures + 1))
}

cat >pair.cfg <<'EOF'
cluster: {
  name = "pair";
  scheduler = { host = "127.0.0.1"; port = 0; };
  nodes = ( { id = 0; host = "127.0.0.1"; port = 0; servers = 1; workers = 2; },
            { id = 1; host = "127.0.0.1"; port = 0; servers = 1; workers = 1; } );
};
EOF
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s/port = 0; };\$/port = $port; };/" pair.cfg

# record BY FILE: a run that trains by that
record()
{
    RUBATO_TIMELINE=$2 rubato run pair.cfg -- \
        rubato-softmax --generated --epochs 1 --by "$1" >out 2>&1 ||
        fail "the run by $1 failed: $(tail -3 out)"
}
record allreduce reduced.json
record tables tables.json
rubato timeline merge reduced.node-0.json reduced.node-1.json >joined.json || fail 'merge failed'
for file in reduced.node-0.json reduced.node-1.json tables.node-0.json joined.json; do
    "$check" "$file" >found || fail "$file breaks a rule: $(head -3 found)"
done
grep -q '"ph":"b"' joined.json || fail 'no collective was recorded'
grep -q '"ph":"X"' tables.node-0.json || fail 'no call was recorded'

# refuse TEXT EVENT...: a trace of these events is wrong, and TEXT says so
refuse()
{
    local text=$1

    shift
    { printf '['; printf '%s,' '{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{}}' "$@" |
        sed 's/,$//'; printf ']'; } >wrong
    "$check" wrong >found && fail "taken: $*"
    grep -qF -- "$text" found || fail "nothing of '$text' in: $(cat found)"
}
span() { printf '{"ph":"X","pid":1,"tid":0,"ts":%s,"dur":%s,"name":"span"}' "$1" "$2"; }
mark() { printf '{"ph":"%s","pid":1,"tid":0,"cat":"c","id":"1","ts":%s,"name":"%s"}' "$1" "$2" "$3"; }

refuse 'ends behind the span' "$(span 1 5)" "$(span 4 5)"
refuse 'no duration' "$(span 1 -5)"
refuse 'does not end' "$(mark b 1 a)"
refuse 'has no beginning' "$(mark e 1 a)"
refuse 'ends another event' "$(mark b 1 a)" "$(mark b 2 b)" "$(mark e 3 a)" "$(mark e 4 b)"
refuse 'has not begun' "$(mark f 1 a)"
refuse 'a flow does not end' "$(mark s 1 a)"
refuse 'unknown phase' "$(mark Q 1 a)"
refuse 'no time' "$(mark b '"soon"' a)"
refuse 'pid is no whole number' '{"ph":"X","tid":0,"ts":1,"dur":1,"name":"span"}'
refuse 'has no name' '{"ph":"X","pid":2,"tid":0,"ts":1,"dur":1,"name":"span"}'

if [ "$failures" -gt 0 ]; then
    echo "test_timeline_format: $failures failures"
    exit 1
fi
echo "test_timeline_format: timelines are as viewers read them"
