#!/bin/sh
# Each section of the pages that promise something is named in the source of a test that holds it, as in
# "docs/liveness.md: An interrupt"; several sections of a page are parted by semicolons.
set -u
cd "$(dirname "$0")/../.." || exit 1
named=$(grep -rhoE 'docs/[a-z-]+\.md: [^*]*' tests --include='*.[ch]')
failures=0

for page in docs/liveness.md docs/security.md; do
    sections=$(sed -n 's/^## //p' "$page")
    [ -n "$sections" ] || { echo "test_promises: $page has no sections"; failures=$((failures + 1)); }
    while IFS= read -r section; do
        printf '%s\n' "$named" | grep -F "$page: " | sed "s|^$page: ||" | tr ';' '\n' |
            sed 's/^ *//; s/[ .]*$//' | grep -qxF "$section" && continue
        echo "test_promises: no test says that it holds \"$page: $section\""
        failures=$((failures + 1))
    done <<EOF
$sections
EOF
done
[ "$failures" -eq 0 ]
