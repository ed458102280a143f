#!/bin/bash
# The update rules give the same bits with plain loops, with AVX2, with AVX-512, and as the library
# chooses between them.
set -euo pipefail

programs=${RUBATO_BUILD_DIR:?is the build directory whose library is tested}/tests
n_compared=0

if [ ! -x "$programs/update_digest_plain" ]; then
    echo "test_vector_clones: this build has the plain loops alone"
    exit 77
fi
plain=$("$programs/update_digest_plain")
if [ "$(wc -l <<<"$plain")" -lt 300 ]; then
    echo "test_vector_clones: too few lines: $plain"
    exit 1
fi
for variant in library avx2 avx512f; do
    if [ "$variant" != library ] && ! grep -qwm1 "$variant" /proc/cpuinfo; then
        echo "test_vector_clones: this processor has no $variant"
        continue
    fi
    if ! diff <(echo "$plain") <("$programs/update_digest_$variant"); then
        echo "test_vector_clones: < the plain loops, > $variant"
        exit 1
    fi
    n_compared=$((n_compared + 1))
done
echo "test_vector_clones: $n_compared variants give the same $(wc -l <<<"$plain") checksums"
