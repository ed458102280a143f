#!/bin/bash
# The tables of mutations fit the sources, and tests/mutate says so when one does not.
set -euo pipefail

cd "$(dirname "$0")/../.."

table=$(mktemp)
trap 'rm -f "$table"' EXIT

fail()
{
    echo "test_mutate: $*"
    exit 1
}

# The table of the standard input is refused, with these words.
refuses()
{
    local said

    cat >"$table"
    said=$(tests/mutate --check --table "$table" 2>&1) && fail "it took a table: $(cat "$table")"
    [[ $said == *"$1"* ]] || fail "it said \"$said\" and not \"$1\""
}

refuses "has no longer" <<'END'
models/progress.c: test_progress
- if (clock <= older)
+ if (clock < older)
END
refuses "has more than once" <<'END'
models/progress.c: test_progress
- return;
+ return 1;
END
refuses "there is no test test_nothing" <<'END'
models/progress.c: test_nothing
- if (clock <= old)
+ if (clock < old)
END
refuses "there is no file models/nothing.c" <<'END'
models/nothing.c: test_progress
- if (clock <= old)
+ if (clock < old)
END
refuses "changes nothing" <<'END'
models/progress.c: test_progress
- if (clock <= old)
+ if (clock <= old)
END
refuses "wants a file and tests" <<'END'
- if (clock <= old)
+ if (clock < old)
END

# Places that look the same are told apart by what is beside them.
cat >"$table" <<'END'
models/progress.c: test_progress
- return;
+ return (void)0;
  progress->counts[clock & progress->mask]++;

models/progress.c: test_progress
- if (clock <= old)
+ if (clock < old)
= for this test's sake
END
[ "$(tests/mutate --list --table "$table" | wc -l)" = 2 ] || fail "it does not list two mutations"
tests/mutate --list --table "$table" --only 'void' | grep -q '^1 models/progress.c:[0-9]*: return; → ' ||
    fail "it does not list what --only asks for"
tests/mutate --list --table "$table" | grep -q "(test_progress) equivalent: for this test's sake\$" ||
    fail "it does not say what is equivalent"

tests/mutate --check
