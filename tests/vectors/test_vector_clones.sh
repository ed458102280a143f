#!/bin/bash
# The update rules, sums and drawn initial values give the same bits with plain loops, with AVX2, with AVX-512, and as the
# library chooses between them. The library has a variant of each loop for each of these.
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

# Functions between whose variants the loader chooses: rules, additions, checks, sums, draws.
library=$(readlink -f "$RUBATO_BUILD_DIR/lib/librubato.so")
symbols=$(readelf --wide --symbols "$library" | awk '{ print $4, $8 }')
for name in add_f32 add_f64 add_u8 add_u32 add_u64 add_rows_f32 add_rows_f64 add_rows_u32 \
    add_rows_u64 apply are_good_f32 are_good_f64 cut_block divide_f32 divide_f64 draw_normal \
    find_descents find_largest is_ascending outside_bits prepare_f32 prepare_f64 rows_f32 rows_f64 take_block; do
    if ! grep -qx "IFUNC $name" <<<"$symbols"; then
        echo "test_vector_clones: the loader does not choose between variants of $name"
        exit 1
    fi
    for variant in default avx2 avx512f; do
        if ! grep -qx "FUNC $name.$variant" <<<"$symbols"; then
            echo "test_vector_clones: there is no $name for $variant"
            exit 1
        fi
    done
done
echo "test_vector_clones: $n_compared variants give the same $(wc -l <<<"$plain") checksums"
