/* See the header. */
#include "io/history/history_forms.h"

#include <string.h>

#include <rubato/vector_clones.h>

/* ---- keys ---- */

typedef struct {
    uint64_t keys, steps; /* the bits that are set in any of them */
} KeyBits;

/* n > 0. Of an unsorted list some step has its highest bits set. */
RUBATO_VECTOR_CLONES static KeyBits find_key_bits(const uint64_t *keys, size_t n)
{
    KeyBits bits = { keys[0], 0 };

    for (size_t i = 1; i < n; i++) {
        bits.keys |= keys[i];
        bits.steps |= keys[i] - keys[i - 1];
    }
    return bits;
}

#define DEFINE_KEYS(bytes, type)                                                               \
    RUBATO_VECTOR_CLONES static void put_keys_##bytes(uint8_t *restrict at,                    \
                                                      const uint64_t *restrict keys, size_t n) \
    {                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                       \
            const type key = (type)keys[i];                                                    \
            memcpy(at + i * sizeof key, &key, sizeof key);                                     \
        }                                                                                      \
    }
DEFINE_KEYS(4, uint32_t)
DEFINE_KEYS(2, uint16_t)

#define DEFINE_STEPS(bytes, type)                                                               \
    RUBATO_VECTOR_CLONES static void put_steps_##bytes(uint8_t *restrict at,                    \
                                                       const uint64_t *restrict keys, size_t n) \
    {                                                                                           \
        for (size_t i = 1; i < n; i++) {                                                        \
            const type step = (type)(keys[i] - keys[i - 1]);                                    \
            memcpy(at + (i - 1) * sizeof step, &step, sizeof step);                             \
        }                                                                                       \
    }
DEFINE_STEPS(4, uint32_t)
DEFINE_STEPS(2, uint16_t)
DEFINE_STEPS(1, uint8_t)

uint8_t *history_put_keys(const uint64_t *keys, size_t n, uint8_t *at, HistoryKeysForm *form)
{
    const KeyBits bits = find_key_bits(keys, n);

    if (bits.keys <= UINT16_MAX && bits.steps > UINT8_MAX) {
        *form = HISTORY_KEYS_2;
        put_keys_2(at, keys, n);
        return at + 2 * n;
    }
    if (bits.keys <= UINT32_MAX && bits.steps > UINT16_MAX) {
        *form = HISTORY_KEYS_4;
        put_keys_4(at, keys, n);
        return at + 4 * n;
    }
    if (bits.steps > UINT32_MAX) {
        *form = HISTORY_KEYS_PLAIN;
        memcpy(at, keys, n * sizeof *keys);
        return at + n * sizeof *keys;
    }
    memcpy(at, keys, sizeof *keys);
    at += sizeof *keys;
    if (bits.steps <= UINT8_MAX) {
        *form = HISTORY_KEYS_STEPS_1;
        put_steps_1(at, keys, n);
        return at + (n - 1);
    }
    if (bits.steps <= UINT16_MAX) {
        *form = HISTORY_KEYS_STEPS_2;
        put_steps_2(at, keys, n);
        return at + 2 * (n - 1);
    }
    *form = HISTORY_KEYS_STEPS_4;
    put_steps_4(at, keys, n);
    return at + 4 * (n - 1);
}

/* ---- values ---- */

/* What a pass over all values finds. */
typedef struct {
    uint64_t broken; /* not 0: some is no whole number of a small range */
    int64_t least, most;
} Found;

static bool are_alike(const uint8_t *values, size_t n, size_t size)
{
    return memcmp(values, values + size, (n - 1) * size) == 0;
}

/* A float of a small range becomes a whole number by an addition after which its last bit counts
 * ones: then the sum has the sign and exponent of `shift`. It was a whole number if subtraction
 * gives the same bits back. -0, infinities and the like do not. */
#define DEFINE_WHOLE(dtype, value_type, bits_type, whole_type, shift_value, exponent_at) \
    static inline whole_type whole_##dtype(bits_type bits, bits_type *broken)            \
    {                                                                                    \
        const value_type shift = shift_value;                                            \
        value_type value, moved;                                                         \
        bits_type moved_bits, shift_bits, back_bits;                                     \
                                                                                         \
        memcpy(&value, &bits, sizeof value);                                             \
        memcpy(&shift_bits, &shift, sizeof shift);                                       \
        moved = value + shift;                                                           \
        memcpy(&moved_bits, &moved, sizeof moved);                                       \
        value = moved - shift;                                                           \
        memcpy(&back_bits, &value, sizeof value);                                        \
        *broken |= (back_bits ^ bits) | (moved_bits ^ shift_bits) >> exponent_at;        \
        return (whole_type)(moved_bits - shift_bits);                                    \
    }
DEFINE_WHOLE(f32, float, uint32_t, int32_t, 0x1.8p23f, 23)
DEFINE_WHOLE(f64, double, uint64_t, int64_t, 0x1.8p52, 52)

static inline int32_t whole_i32(uint32_t bits, uint32_t *broken)
{
    (void)broken;
    return (int32_t)bits;
}

static inline int64_t whole_i64(uint64_t bits, uint64_t *broken)
{
    (void)broken;
    return (int64_t)bits;
}

#define DEFINE_PUT(dtype, bits_type, whole_type, bytes, type)                             \
    RUBATO_VECTOR_CLONES static void put_##dtype##_##bytes(                               \
        uint8_t *restrict at, const uint8_t *restrict values, size_t n, whole_type least) \
    {                                                                                     \
        bits_type ignored = 0;                                                            \
                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                  \
            bits_type bits;                                                               \
            type more;                                                                    \
                                                                                          \
            memcpy(&bits, values + i * sizeof bits, sizeof bits);                         \
            more = (type)((bits_type)whole_##dtype(bits, &ignored) - (bits_type)least);   \
            memcpy(at + i * sizeof more, &more, sizeof more);                             \
        }                                                                                 \
    }

/* find_…: n > 0. Most values that are broken are so at the ends. */
#define DEFINE_DTYPE(dtype, bits_type, whole_type)                                  \
    RUBATO_VECTOR_CLONES static Found find_##dtype(const uint8_t *values, size_t n) \
    {                                                                               \
        bits_type bits, broken = 0;                                                 \
        whole_type least, most;                                                     \
                                                                                    \
        memcpy(&bits, values, sizeof bits);                                         \
        least = most = whole_##dtype(bits, &broken);                                \
        for (size_t i = 1; i < n; i++) {                                            \
            memcpy(&bits, values + i * sizeof bits, sizeof bits);                   \
            const whole_type whole = whole_##dtype(bits, &broken);                  \
            least = whole < least ? whole : least;                                  \
            most = whole > most ? whole : most;                                     \
        }                                                                           \
        return (Found){ broken, least, most };                                      \
    }                                                                               \
                                                                                    \
    static bool has_broken_end_##dtype(const uint8_t *values, size_t n)             \
    {                                                                               \
        bits_type bits, broken = 0;                                                 \
                                                                                    \
        memcpy(&bits, values, sizeof bits);                                         \
        (void)whole_##dtype(bits, &broken);                                         \
        memcpy(&bits, values + (n - 1) * sizeof bits, sizeof bits);                 \
        (void)whole_##dtype(bits, &broken);                                         \
        return broken != 0;                                                         \
    }                                                                               \
                                                                                    \
    DEFINE_PUT(dtype, bits_type, whole_type, 1, uint8_t)                            \
    DEFINE_PUT(dtype, bits_type, whole_type, 2, uint16_t)                           \
                                                                                    \
    static uint8_t *put_##dtype(const uint8_t *values, size_t n, uint8_t *at,       \
                                HistoryRowsForm *form)                              \
    {                                                                               \
        Found found = { .broken = 1 };                                              \
        whole_type least;                                                           \
                                                                                    \
        if (are_alike(values, n, sizeof least)) {                                   \
            *form = HISTORY_ROWS_ALIKE;                                             \
            memcpy(at, values, sizeof least);                                       \
            return at + sizeof least;                                               \
        }                                                                           \
        if (!has_broken_end_##dtype(values, n))                                     \
            found = find_##dtype(values, n);                                        \
        const uint64_t range = (uint64_t)found.most - (uint64_t)found.least;        \
        if (found.broken != 0 || range > UINT16_MAX) {                              \
            *form = HISTORY_ROWS_PLAIN;                                             \
            memcpy(at, values, n * sizeof least);                                   \
            return at + n * sizeof least;                                           \
        }                                                                           \
        least = (whole_type)found.least;                                            \
        memcpy(at, &least, sizeof least);                                           \
        at += sizeof least;                                                         \
        if (range <= UINT8_MAX) {                                                   \
            *form = HISTORY_ROWS_WHOLE_1;                                           \
            put_##dtype##_1(at, values, n, least);                                  \
            return at + n;                                                          \
        }                                                                           \
        *form = HISTORY_ROWS_WHOLE_2;                                               \
        put_##dtype##_2(at, values, n, least);                                      \
        return at + 2 * n;                                                          \
    }

DEFINE_DTYPE(f32, uint32_t, int32_t)
DEFINE_DTYPE(f64, uint64_t, int64_t)
DEFINE_DTYPE(i32, uint32_t, int32_t)
DEFINE_DTYPE(i64, uint64_t, int64_t)

uint8_t *history_put_values(RubatoDtype dtype, const void *values, size_t n, uint8_t *at,
                            HistoryRowsForm *form)
{
    switch (dtype) {
    case RUBATO_F32:
        return put_f32(values, n, at, form);
    case RUBATO_F64:
        return put_f64(values, n, at, form);
    case RUBATO_I32:
        return put_i32(values, n, at, form);
    case RUBATO_I64:
        return put_i64(values, n, at, form);
    case RUBATO_U8: /* the rest: of ragged rows and tensors alone, which have other records */
    case RUBATO_F16:
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
    g_assert_not_reached();
}
