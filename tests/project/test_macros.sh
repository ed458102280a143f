#!/bin/bash
# MIN, MAX, CLAMP and ABS of GLib evaluate an argument twice. A call in one is made twice, and what it
# returns the second time may be something else: so no argument is a call.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)

# Prints where an argument of the macros has a call in it; sizeof and other macros are none.
find_calls()
{
    # shellcheck disable=SC2016 # the variables are Perl's
    perl -0777 -ne '
        while (/\b(?:MIN|MAX|CLAMP|ABS)(\((?:[^()]++|(?1))*\))/g) {
            my ($arguments, $words, $inside) = ($1, $1, $-[1] + 1);
            my $line = 1 + substr($_, 0, $-[0]) =~ tr/\n//;
            $arguments =~ s/\s+/ /g;
            $words =~ s/\bsizeof\b//g;
            print "$ARGV:$line: $arguments\n" if $words =~ /[a-z0-9_]\s*\(/ || $words =~ /\+\+|--/;
            pos() = $inside; # macros inside of this one, too
        }' "$@"
}

# It finds what it is to find.
found=$(printf 'a = MIN(b, (int)c);\nd = MAX(e,\n        CLAMP(f(g), 1, 2));\nh = ABS(i++);\nj = MIN(sizeof(k), K(1));\n' |
    find_calls - | sed 's/^-:\([0-9]*\):.*/\1/' | tr '\n' ' ')
if [ "$found" != "2 3 4 " ]; then
    echo "test_macros: found calls in lines $found instead of 2 3 4"
    exit 1
fi

cd "$source_dir"
calls=$(find apps engine include io models tables tests -name '*.[ch]' -print0 | sort -z |
    xargs -0 bash -c "$(declare -f find_calls); find_calls \"\$@\"" find_calls)
if [ -n "$calls" ]; then
    echo "$calls"
    echo "test_macros: give the value of the call a name first"
    exit 1
fi
