#!/bin/bash
# The network namespaces that stand for hosts in other tests (hosts): the rate and the delay that were
# asked for are those that a connection has, and a host that is cut off is reached by nobody.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
hosts=$source_dir/tests/jobs/hosts
self=$source_dir/tests/jobs/test_hosts.sh
failures=0

fail()
{
    failures=$((failures + 1))
    echo "test_hosts: $1"
}

# A server on a host sends back what comes as "echo", and prints the rate of a "flood" in Mbit/s,
# without its first megabyte, which the limit lets through in bursts.
# A client prints the milliseconds of the fastest of 20 echoes, or floods for two seconds.
talk() # serve|echo|flood, [host]
{
    /usr/bin/python3 - "$@" <<'END_PYTHON'
import socket, sys, time

def serve():
    server = socket.create_server(("", 5001))
    print("ready", flush=True)
    connection = server.accept()[0]
    if connection.recv(1) == b"e":
        while byte := connection.recv(1):
            connection.sendall(byte)
        return
    n, first, begun = 0, None, None
    while data := connection.recv(1 << 16):
        n += len(data)
        now = time.monotonic()
        if first is None and n >= 1 << 20:
            first, begun = n, now
    print(round((n - first) * 8e-6 / (now - begun)))

def echo(connection):
    times = []
    for _ in range(20):
        begun = time.monotonic()
        connection.sendall(b"x")
        connection.recv(1)
        times.append(time.monotonic() - begun)
    print(round(min(times) * 1e3))

def flood(connection):
    end = time.monotonic() + 2
    while time.monotonic() < end:
        connection.sendall(bytes(1 << 16))

if sys.argv[1] == "serve":
    serve()
else:
    connection = socket.create_connection((sys.argv[2], 5001), timeout=2)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(sys.argv[1][:1].encode())
    (echo if sys.argv[1] == "echo" else flood)(connection)
END_PYTHON
}

# Starts a server on host west.
serve()
{
    "$hosts" on west "$self" talk serve >served &
    server=$!
    until grep -q ready served; do # it comes, or the server has ended
        kill -0 "$server" 2>/dev/null || return
        sleep 0.05
    done
}

# A client on host east talks to a server on host west. Prints what they print.
measure() # echo|flood
{
    serve
    timeout 60 "$hosts" on east "$self" talk "$1" west
    wait "$server"
    sed 1d served
}

# Whether the first number is the second, by a fifth at the most.
is_about()
{
    [ $((5 * $1)) -ge $((4 * $2)) ] && [ $((5 * $1)) -le $((6 * $2)) ]
}

limits_are_held() # RATE, DELAY; empty: this kernel has none
{
    local rate milliseconds

    if [ -n "$1" ]; then
        rate=$(measure flood)
        is_about "${rate:-0}" "$1" || fail "a host sends ${rate:-no} Mbit/s, and $1 were asked for"
    fi
    if [ -n "$2" ]; then
        milliseconds=$(measure echo)
        is_about "${milliseconds:-0}" $((2 * $2)) ||
            fail "an echo takes ${milliseconds:-no} ms, and each way was to take $2"
    fi
}

a_host_that_is_cut_off_is_reached_again_once_it_has_joined()
{
    serve
    "$hosts" cut west
    if timeout 60 "$hosts" on east "$self" talk echo west >said 2>&1; then
        fail "a host that is cut off is reached"
    fi
    "$hosts" join west
    timeout 60 "$hosts" on east "$self" talk echo west >said 2>&1 ||
        fail "a host that has joined again is not reached: $(tail -n 1 said)"
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}

case ${1:-} in
talk)
    shift
    talk "$@"
    exit
    ;;
with-limits)
    cd "$HOSTS_DIR" || exit 1
    limits_are_held "$2" "$3"
    a_host_that_is_cut_off_is_reached_again_once_it_has_joined
    exit "$failures"
    ;;
esac

[ -x /usr/bin/python3 ] || {
    echo "test_hosts: skipped: not installed: python3"
    exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The kernel may have one of the limits, or none.
"$hosts" --rate 1 --delay 1 east,west true 2>"$scratch/missing"
status=$?
cat "$scratch/missing"
[ "$status" -ne 77 ] || exit 77
rate=24 delay=50
grep -q sch_tbf "$scratch/missing" && rate=
grep -q sch_netem "$scratch/missing" && delay=
"$hosts" ${rate:+--rate "$rate"} ${delay:+--delay "$delay"} east,west "$self" with-limits "$rate" "$delay"
failures=$?
if [ "$failures" -gt 0 ]; then
    echo "test_hosts: $failures failures"
    exit 1
fi
echo "test_hosts: hosts have the${rate:+ rate}${rate:+${delay:+ and the}}${delay:+ delay} they were given, within a fifth"
