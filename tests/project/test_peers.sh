#!/bin/bash
# tests/bench/peers-collectives with stand-ins for rubato-bench and Open MPI: what it prints, leaves
# out and refuses; what tests/bench/peers refuses. The real ones take minutes, and are run by hand.
set -euo pipefail

script=$(cd "$(dirname "$0")/../bench" && pwd)/peers-collectives
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail()
{
    echo "test_peers: $*" >&2
    exit 1
}

# A stand-in: the text of a script.
stand_in()
{
    mkdir -p "$(dirname "$1")"
    { echo '#!/bin/sh' && cat; } >"$1"
    chmod +x "$1"
}

[ -x /usr/bin/python3 ] || { echo "test_peers: skipped: there is no /usr/bin/python3" && exit 77; }
# A case of --case NAME --json FILE takes 30 us, or 60 us where nodes are of one host.
stand_in "$scratch/build/bin/rubato-bench" <<'END'
[ "$1 $3" = "--case --json" ] || exit 1
median=3e-5
case $2 in *-host-2) median=6e-5 ;; esac
echo "{ \"cases\": [ { \"name\": \"$2\", \"median\": $median } ] }" >"$4.new" # as the real one does
mv "$4.new" "$4"
END
stand_in "$scratch/peers/mpicc" <<'END'
exit 0
END
# As many processes as -n says take as often 10 us.
stand_in "$scratch/peers/mpirun" <<'END'
echo "0.0000$4"
END
# Without PyTorch, wherever it is.
mkdir "$scratch/python"
echo 'raise ImportError("a stand-in")' >"$scratch/python/torch.py"
export PYTHONPATH=$scratch/python PYTHONDONTWRITEBYTECODE=1

"$script" --help | grep -q -- --install || fail "--help does not speak of --install"

PATH=$scratch/peers:$PATH "$script" --rounds 2 --quick "$scratch/build" 64k 1600k \
    >"$scratch/table" 2>"$scratch/said" || fail "it failed: $(cat "$scratch/said")"
diff "$scratch/table" - <<'END' || fail "the table is another"
| tensor | Rubato's case | time | peer | time | times as long |
|---|---|---|---|---|---|
| 64k | allreduce-64k-threads-2 | 30.0 us | Open MPI | 20.0 us | 1.50 |
| 64k | allreduce-64k-host-2 | 60.0 us | Open MPI | 20.0 us | 3.00 |
| 1600k | allreduce-1600k-threads-2 | 30.0 us | Open MPI | 20.0 us | 1.50 |
| 1600k | allreduce-1600k-host-2 | 60.0 us | Open MPI | 20.0 us | 3.00 |
END
[ "$(cat "$scratch/said")" = \
    "peers-collectives: gloo is skipped: python3-torch is not installed" ] ||
    fail "expected that gloo is skipped, found: $(cat "$scratch/said")"

PATH=$scratch/peers:$PATH "$script" --rounds 1 --ranks 4 "$scratch/build" 64k \
    >"$scratch/table" 2>"$scratch/said" || fail "it failed: $(cat "$scratch/said")"
grep -qF "| 64k | allreduce-64k-host-4 | 30.0 us | Open MPI | 40.0 us | 0.75 |" "$scratch/table" ||
    fail "four ranks are not compared: $(cat "$scratch/table")"

# gloo has no reduce-scatter, and no other operation than allreduce is of one value.
PATH=$scratch/peers:$PATH "$script" --rounds 1 --operation reduce-scatter "$scratch/build" 64k \
    >"$scratch/table" 2>"$scratch/said" || fail "it failed: $(cat "$scratch/said")"
grep -qF "| 64k | reduce-scatter-64k-host-2 | 60.0 us | Open MPI | 20.0 us | 3.00 |" "$scratch/table" ||
    fail "reduce-scatter is not compared: $(cat "$scratch/table")"
grep -q "gloo is skipped: it has no reduce-scatter" "$scratch/said" || fail "$(cat "$scratch/said")"
"$script" --operation broadcast "$scratch/build" 1 2>"$scratch/said" && fail "it takes size 1"
grep -q "broadcast has no size 1" "$scratch/said" || fail "$(cat "$scratch/said")"

# Options may stand anywhere. A peer that was not asked for is left out without a word.
PATH=$scratch/peers:$PATH "$script" --rounds 1 "$scratch/build" --peers openmpi 64k \
    >"$scratch/table" 2>"$scratch/said" || fail "it failed: $(cat "$scratch/said")"
grep -qF "| 64k | allreduce-64k-host-2 | 60.0 us | Open MPI | 20.0 us | 3.00 |" "$scratch/table" ||
    fail "options between arguments change what is compared: $(cat "$scratch/table")"
[ ! -s "$scratch/said" ] || fail "it speaks of a peer that was left out: $(cat "$scratch/said")"
PATH=$scratch/peers:$PATH "$script" "$scratch/build" --peers gloo \
    >"$scratch/table" 2>"$scratch/said" || fail "it failed: $(cat "$scratch/said")"
[ ! -s "$scratch/table" ] || fail "it compares with a peer that was left out"
for wrong in mpich "openmpi," ""; do
    "$script" --peers "$wrong" "$scratch/build" 2>"$scratch/said" && fail "it takes --peers '$wrong'"
    grep -q "there is no peer .*; known are openmpi, gloo" "$scratch/said" ||
        fail "$(cat "$scratch/said")"
done
"$script" --peers openmpi,gloo --operation reduce-scatter "$scratch/none" 2>"$scratch/said" &&
    fail "it takes a build that there is not"
grep -q "has no bin/rubato-bench" "$scratch/said" || fail "$(cat "$scratch/said")"

# Without any peer there is nothing to do, which is no failure.
PATH=$scratch/none "$script" "$scratch/build" >"$scratch/table" 2>"$scratch/said" ||
    fail "it failed without peers: $(cat "$scratch/said")"
grep -q "Open MPI is skipped" "$scratch/said" || fail "it does not say that Open MPI is skipped"
grep -q "nothing to compare with" "$scratch/said" || fail "it does not say that there are no peers"
[ ! -s "$scratch/table" ] || fail "it prints a table without peers"

"$script" "$scratch/build" 3k 2>"$scratch/said" && fail "it takes a size that there is not"
grep -q "there is no size 3k; known are 1, 64k" "$scratch/said" || fail "$(cat "$scratch/said")"
"$script" "$scratch" 2>"$scratch/said" && fail "it takes a build without rubato-bench"
grep -q "has no bin/rubato-bench" "$scratch/said" || fail "$(cat "$scratch/said")"

peers=$(dirname "$script")/peers
"$peers" "$scratch/build" --repeat 1 kmeans words2 2>"$scratch/said" && fail "peers takes words2"
grep -q "there is no comparison words2; known are kmeans, gbdt" "$scratch/said" ||
    fail "$(cat "$scratch/said")"
"$peers" "$scratch/build" --repeat 0 kmeans 2>"$scratch/said" && fail "peers takes --repeat 0"
grep -q "repeat takes a number from 1 on" "$scratch/said" || fail "$(cat "$scratch/said")"
echo "test_peers: the table, what is left out and what is refused are as they should be"
