#!/bin/bash
# No line of a C source is longer than 100 columns, comments included: clang-format leaves those as
# they are. Columns are characters, not bytes.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)

find_long_lines()
{
    perl -CSD -ne 'chomp; print "$ARGV:$.: ", length, " columns\n" if length > 100; close ARGV if eof' "$@"
}

# It finds what it is to find: 101 columns, but not 100 characters of two bytes each.
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
perl -CSD -e 'print "\x{e4}" x 100, "\n", "\x{e4}" x 101, "\n"' >"$scratch"
found=$(find_long_lines "$scratch" | sed 's/^[^:]*:\([0-9]*\):.*/\1/' | tr '\n' ' ')
if [ "$found" != "2 " ]; then
    echo "test_columns: found long lines $found instead of 2"
    exit 1
fi

cd "$source_dir"
mapfile -d '' -t sources < <(find apps engine include io models tables tests -name '*.[ch]' -print0 | sort -z)
lines=$(find_long_lines "${sources[@]}")
if [ -n "$lines" ]; then
    echo "$lines"
    echo "test_columns: the lines above are longer than 100 columns"
    exit 1
fi
echo "test_columns: no line is longer than 100 columns"
