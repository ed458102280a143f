#!/bin/bash
# An enumerator begins with its type's name: MESSAGE_KIND_GET for a MessageKind, or MESSAGE_GET if no
# other type's enumerators begin so. A count, such as N_KINDS, may say so alone. Enumerations without a
# name are integers of one file and have no type.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)

find_strays()
{
    # shellcheck disable=SC2016 # the variables are Perl's
    perl -0777 -ne '
        s{/\*.*?\*/}{$& =~ tr/\n//cdr}gse;
        while (/(\btypedef\s+)?\benum\s+(\w+)?\s*\{([^{}]*)\}\s*(\w+)?/g) {
            my $type = $1 ? $4 : $2;
            next if !defined $type;
            my ($list, $line) = ($3, 1 + substr($_, 0, $-[0]) =~ tr/\n//);
            1 while $list =~ s/\([^()]*\)//g;
            (my $whole = $type) =~ s/(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/_/g;
            $whole = uc $whole;
            my ($short) = $whole =~ /^(.*)_[^_]*$/;
            for my $member ($list =~ /(?:^|,)\s*(\w+)/g) {
                next if $member =~ /(?:^|_)N_/ || $member =~ /^${whole}_/;
                if (defined $short && $member =~ /^${short}_/) {
                    $owner{$short} //= $type;
                    next if $owner{$short} eq $type;
                    print "$ARGV:$line: $member of $type begins like one of $owner{$short}\n";
                } else {
                    print "$ARGV:$line: $member is not named for its type $type\n";
                }
            }
        }' "$@"
}

# It finds what it is to find.
found=$(find_strays - <<'EOF' | sed 's/^-:\([0-9]*\): \([A-Z_]*\) .*/\1 \2/' | tr '\n' ' '
typedef enum { CALL_STATUS_OK, CALL_LOST /* CALL, WAITED */, GO = (1 << 2), N_STATUSES } CallStatus;
typedef enum { CALL_PLACE_HERE,
               CALL_THERE } CallPlace;
enum Way { WAY_UP, DOWN };
enum { NO_TYPE };
EOF
)
if [ "$found" != "1 GO 2 CALL_THERE 4 DOWN " ]; then
    echo "test_enumerators: found '$found' instead of '1 GO 2 CALL_THERE 4 DOWN '"
    exit 1
fi

cd "$source_dir"
mapfile -d '' -t sources < <(find apps engine include io models tables tests -name '*.[ch]' -print0 | sort -z)
strays=$(find_strays "${sources[@]}")
if [ -n "$strays" ]; then
    echo "$strays"
    echo "test_enumerators: the names above do not begin with their type's, or with its own short form"
    exit 1
fi
echo "test_enumerators: every enumerator is named for its type"
