#!/bin/bash
# Makes the HTML pages of the documentation, and follows each link in them to a page, and to its
# anchor there.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
command -v cmark-gfm >/dev/null || {
    echo "test_pages: there is no cmark-gfm; nothing was tested"
    exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$source_dir/docs/make-pages" "$scratch/html"
cd "$scratch/html"
find . -type f | sort >"$scratch/files"
grep -ro --include='*.html' '\(id\|href\|src\)="[^"]*"' . |
    awk -v files="$scratch/files" '
        BEGIN {
            while ((getline file < files) > 0)
                is_there[file] = 1
        }
        {
            page = substr($0, 1, index($0, ":") - 1)
            what = substr($0, length(page) + 2)
            value = what
            gsub(/^[a-z]*="|"$/, "", value)
            if (what ~ /^id=/)
                is_there[page "#" value] = 1
            else if (value !~ /^[a-z]+:/)
                links[page " " value] = 1
        }
        function normal(path) {
            while (sub(/\/[^\/.][^\/]*\/\.\.\//, "/", path) || sub(/\/\.\//, "/", path))
                ;
            return path
        }
        END {
            for (link in links) {
                n++
                split(link, part, " ")
                target = part[2]
                folder = part[1]
                sub(/[^\/]*$/, "", folder)
                file = target ~ /^#/ ? part[1] target : normal(folder target)
                if (!(file in is_there)) {
                    print part[1] ": leads to " target ", which is not there"
                    n_bad++
                }
            }
            if (n < 100) {
                print "there are " n " links only"
                n_bad++
            }
            print "test_pages: " n " links of the pages were followed"
            exit n_bad > 0
        }'
