/* The admit_count-th Add to a key makes its row.
 *
 * The Adds are counted in a sketch: a counting Bloom filter (Fan, Cao, Almeida, Broder, IEEE/ACM
 * ToN 8(3), 2000) whose counters of a key all lie in one cache line (Putze, Sanders, Singler, JEA
 * 14, 2009), counted conservatively (Estan, Varghese, TOCS 21(3), 2003): of a key's counters only
 * the least grow. The least is the key's count. Unless counts age, it is never too low; it is too
 * high when other keys share all of the key's counters. So a key may have its row too early, and
 * never too late.
 *
 *     block    64 counters, chosen by the upper half of a key's hash; 4 of these are the key's,
 *              chosen by 6 bits each
 *     counter  1, 2, 4 or 8 bits: the fewest that can count to admit_count - 1
 *
 * So a block has 8, 16, 32 or 64 bytes, and a key's counters lie in one cache line.
 *
 * Keys that never come again fill a sketch, until it admits all keys. With admit_halve_after,
 * counts age, as in TinyLFU (Einziger, Friedman, Manes, ACM Trans. Storage 13(4), 2017). After each
 * so many counted Adds all counters are halved, a line of 64 bytes at each of the next counted
 * Adds: no Add waits for more than that. The number of refused Adds says which line is next. It
 * goes along with a part that moves, and into snapshots; so a replica halves the same lines.
 *
 * An evicted key is admitted again by its next Add, unless its count has aged.
 *
 * Thread: the shard's present owner. */
#include <rubato/error.h>
#include <rubato/storage_ops.h>
#include <sys/mman.h>

#include "io/key_hash.h"
#include "models/spec.h"
#include "models/storage/admission/admission.h"
#include "models/storage/memory_home.h"

#define LINE_BYTES 64u
#define WORDS_OF_LINE (LINE_BYTES / sizeof(uint64_t))
#define BLOCK_BITS 6u /* 2^6 counters are in a block */
#define BLOCK_COUNTERS (1u << BLOCK_BITS)
#define N_COUNTERS 4u /* of a key */
#define MAX_COUNT UINT8_MAX
#define AHEAD 32u /* keys whose blocks are fetched before they are read: enough to cover a miss */

typedef struct {
    RubatoAdmission base;
    KeyHash key_hash;
    uint8_t count;
    uint8_t n_bits; /* of a counter: a block has as many words */
    uint64_t n_lines;
    uint64_t n_blocks;
    uint64_t halve_after; /* n_lines at least; 0: never */
    unsigned char *lines; /* pages of their own, which are touched as they are needed */
    bool is_changed;      /* by others: keys may have rows that are not counted here */
} CountAdmission;

static bool check(const RubatoTableSpec *spec, GError **error)
{
    const uint64_t least = spec_admit_bytes(spec) / LINE_BYTES;

    if (spec->admit_count < 2 || spec->admit_count > MAX_COUNT)
        return spec_refuse(spec, error, "admit_count is %u; \"count\" needs 2 to %u",
                           spec->admit_count, MAX_COUNT);
    if (spec->admit_halve_after > 0 && spec->admit_halve_after < least)
        return spec_refuse(spec, error,
                           "admit_halve_after is %" G_GUINT64_FORMAT
                           "; it needs at least one for each %u bytes of admit_bytes, "
                           "%" G_GUINT64_FORMAT,
                           spec->admit_halve_after, LINE_BYTES, least);
    return true;
}

/* The fewest bits of a counter. */
static uint8_t n_bits_for(uint32_t count)
{
    uint8_t n_bits = 1;

    while (n_bits < 8 && count - 1 >= UINT32_C(1) << n_bits)
        n_bits = (uint8_t)(2 * n_bits);
    return n_bits;
}

/* How many words there are. Those behind the lines say nothing; that they are there tells how many
 * bits a counter has. */
static size_t n_words_of(uint64_t n_lines, unsigned n_bits)
{
    return n_lines * WORDS_OF_LINE + n_bits % 8;
}

/* As many as fit into so many bytes with the words behind them. */
static uint64_t n_lines_for(uint64_t n_bytes, unsigned n_bits)
{
    const uint64_t n_behind = n_words_of(0, n_bits) * sizeof(uint64_t);

    return n_bytes < LINE_BYTES + n_behind ? 1 : (n_bytes - n_behind) / LINE_BYTES;
}

static unsigned n_bits_of(size_t n_words)
{
    const unsigned n_bits = n_words % WORDS_OF_LINE;

    return n_bits == 1 || n_bits == 2 || n_bits == 4 ? n_bits : 8;
}

static RubatoAdmission *create(const RubatoAdmissionSetup *setup, GError **error)
{
    const RubatoTableSpec *spec = setup->spec;
    const uint8_t n_bits = n_bits_for(spec->admit_count);
    const uint64_t n_lines = n_lines_for(spec->admit_bytes, n_bits);
    const size_t n_bytes = n_words_of(n_lines, n_bits) * sizeof(uint64_t);
    void *lines = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CountAdmission *admission;

    if (lines == MAP_FAILED) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for admit_bytes, %" G_GUINT64_FORMAT " in this part",
                    spec->name, n_bytes);
        return NULL;
    }
    memory_home_take(memory_home(), lines, n_bytes);
    (void)madvise(lines, n_bytes, MADV_HUGEPAGE); /* keys are all over it */
    admission = g_new0(CountAdmission, 1);
    admission->key_hash = key_hash_make(setup->seed);
    admission->count = (uint8_t)spec->admit_count;
    admission->n_bits = n_bits;
    admission->n_lines = n_lines;
    admission->n_blocks = n_lines * WORDS_OF_LINE / n_bits;
    if (spec->admit_halve_after > 0)
        admission->halve_after = MAX(spec->admit_halve_after, n_lines);
    admission->lines = lines;
    return &admission->base;
}

static void destroy(RubatoAdmission *base)
{
    CountAdmission *admission = (CountAdmission *)base;

    munmap(admission->lines, n_words_of(admission->n_lines, admission->n_bits) * sizeof(uint64_t));
    g_free(admission);
}

/* The block of a key with this hash; n_bits is that of the admission. */
static inline uint64_t *block_of(const CountAdmission *admission, uint64_t h, unsigned n_bits)
{
    const uint64_t block = (uint64_t)((unsigned __int128)h * admission->n_blocks >> 64);

    return (uint64_t *)(void *)admission->lines + block * n_bits;
}

static void prefetch(const RubatoAdmission *base, RubatoKey key)
{
    const CountAdmission *admission = (const CountAdmission *)base;

    __builtin_prefetch(block_of(admission, key_hash(&admission->key_hash, key), admission->n_bits),
                       1);
}

/* A word's counters without their upper bits, which the halves of their neighbours would come to.
 */
static uint64_t lower_bits(uint8_t n_bits)
{
    return n_bits == 1   ? 0
           : n_bits == 2 ? UINT64_C(0x5555555555555555)
           : n_bits == 4 ? UINT64_C(0x7777777777777777)
                         : UINT64_C(0x7f7f7f7f7f7f7f7f);
}

/* Halves the line whose turn it is, if one is due. Apart from counting, so that Adds to a sketch
 * that does not age save no registers for it. n_counted: Adds, including the present one. */
static void __attribute__((noinline)) age(const CountAdmission *admission, uint64_t n_counted)
{
    const uint64_t line = n_counted % admission->halve_after;
    const uint64_t lower = lower_bits(admission->n_bits);
    uint64_t *words;

    if (line >= admission->n_lines || n_counted < admission->halve_after)
        return;
    words = (uint64_t *)(void *)(admission->lines + line * LINE_BYTES);
    for (size_t i = 0; i < WORDS_OF_LINE; i++)
        words[i] = words[i] >> 1 & lower;
}

AdmissionWords count_admission_words_of(const RubatoAdmission *base, RubatoKey key)
{
    const CountAdmission *admission = (const CountAdmission *)base;
    const unsigned n_bits = admission->n_bits;
    const uint64_t *const block = block_of(admission, key_hash(&admission->key_hash, key), n_bits);

    return (AdmissionWords){ (size_t)(block - (const uint64_t *)(const void *)admission->lines),
                             n_bits };
}

AdmissionWords count_admission_words_aged(const RubatoAdmission *base, uint64_t n_refused)
{
    const CountAdmission *admission = (const CountAdmission *)base;

    if (admission->halve_after == 0 || n_refused < admission->halve_after ||
        n_refused % admission->halve_after >= admission->n_lines)
        return (AdmissionWords){ 0 };
    return (AdmissionWords){ n_refused % admission->halve_after * WORDS_OF_LINE, WORDS_OF_LINE };
}

/* Whether an Add makes a key's row; else it is counted. The block is the key's, h its hash.
 * Storages find keys by other bits of a hash with another seed. Nobody can predict the answer, so
 * there is no jump. With constant n_bits the compiler makes a function for each. */
static inline __attribute__((always_inline)) bool count(const CountAdmission *admission,
                                                        uint64_t *block, uint64_t h,
                                                        unsigned n_bits)
{
    const unsigned n_of_byte = 8 / n_bits, most = (1u << n_bits) - 1;
    unsigned char *mine[N_COUNTERS];
    unsigned at[N_COUNTERS], least = most;
    uint64_t bits = 0;
    bool admits;

    if (n_bits == 1) {
        for (unsigned i = 0; i < N_COUNTERS; i++)
            bits |= UINT64_C(1) << (h >> i * BLOCK_BITS & (BLOCK_COUNTERS - 1));
        admits = (bits & ~*block) == 0;
        *block |= bits;
        return admits;
    }
    for (unsigned i = 0; i < N_COUNTERS; i++) {
        const unsigned counter = h >> i * BLOCK_BITS & (BLOCK_COUNTERS - 1);

        mine[i] = (unsigned char *)block + counter / n_of_byte;
        at[i] = counter % n_of_byte * n_bits;
        least = MIN(least, *mine[i] >> at[i] & most);
    }
    admits = least + 1 >= admission->count;
    for (unsigned i = 0; i < N_COUNTERS; i++) {
        const bool grows = !admits & ((*mine[i] >> at[i] & most) == least);

        *mine[i] = (unsigned char)(*mine[i] + ((unsigned)grows << at[i]));
    }
    return admits;
}

static inline __attribute__((always_inline)) bool ask(const CountAdmission *admission,
                                                      RubatoKey key, unsigned n_bits)
{
    const uint64_t h = key_hash(&admission->key_hash, key);

    return count(admission, block_of(admission, h, n_bits), h, n_bits);
}

static bool admits(RubatoAdmission *base, RubatoKey key)
{
    const CountAdmission *admission = (const CountAdmission *)base;
    const bool admits = admission->n_bits == 1   ? ask(admission, key, 1)
                        : admission->n_bits == 2 ? ask(admission, key, 2)
                        : admission->n_bits == 4 ? ask(admission, key, 4)
                                                 : ask(admission, key, 8);

    if (!admits && admission->halve_after > 0)
        age(admission, base->n_refused + 1);
    return admits;
}

static inline __attribute__((always_inline)) size_t choose(const CountAdmission *admission,
                                                           const RubatoKey *keys,
                                                           uint16_t *positions, size_t n,
                                                           uint16_t *refused, unsigned n_bits)
{
    const KeyHash by = admission->key_hash;
    uint64_t hashes[RUBATO_STORAGE_BLOCK], *blocks[RUBATO_STORAGE_BLOCK];
    size_t n_admitted = 0, n_refused = 0;

    /* where all blocks are fetched at once, the processor waits */
    for (size_t k = 0; k < n + AHEAD; k++) {
        if (k < n) {
            hashes[k] = key_hash(&by, keys[positions[k]]);
            blocks[k] = block_of(admission, hashes[k], n_bits);
            __builtin_prefetch(blocks[k], 1);
        }
        if (k < AHEAD)
            continue;

        const uint16_t i = positions[k - AHEAD];
        const bool admits = count(admission, blocks[k - AHEAD], hashes[k - AHEAD], n_bits);

        positions[n_admitted] = refused[n_refused] = i;
        n_admitted += admits;
        n_refused += !admits;
    }
    return n_admitted;
}

/* Counts age behind all keys: so a key that comes again is not refused if it was admitted. */
size_t count_admission_choose(RubatoAdmission *base, const RubatoKey *keys, uint16_t *positions,
                              size_t n, uint16_t *refused)
{
    const CountAdmission *admission = (const CountAdmission *)base;
    const size_t n_admitted =
        admission->n_bits == 1   ? choose(admission, keys, positions, n, refused, 1)
        : admission->n_bits == 2 ? choose(admission, keys, positions, n, refused, 2)
        : admission->n_bits == 4 ? choose(admission, keys, positions, n, refused, 4)
                                 : choose(admission, keys, positions, n, refused, 8);

    for (size_t i = 1; admission->halve_after > 0 && i <= n - n_admitted; i++)
        age(admission, base->n_refused + i);
    return n_admitted;
}

/* Counters only grow then, and of a key that was admitted all have grown to the count before. */
bool count_admission_admits_rows(const RubatoAdmission *base)
{
    const CountAdmission *admission = (const CountAdmission *)base;

    return !admission->is_changed && admission->halve_after == 0;
}

void count_admission_note_change(RubatoAdmission *base)
{
    ((CountAdmission *)base)->is_changed = true;
}

static uint64_t *memory(RubatoAdmission *base, size_t *n_words)
{
    CountAdmission *admission = (CountAdmission *)base;

    *n_words = n_words_of(admission->n_lines, admission->n_bits);
    return (uint64_t *)(void *)admission->lines;
}

/* A block's counter. */
static unsigned get_counter(const uint64_t *block, unsigned n_bits, unsigned i)
{
    const unsigned n_of_byte = 8 / n_bits;
    const unsigned char byte = ((const unsigned char *)block)[i / n_of_byte];

    return byte >> i % n_of_byte * n_bits & ((1u << n_bits) - 1);
}

static void raise_counter(uint64_t *block, unsigned n_bits, unsigned i, unsigned value)
{
    const unsigned n_of_byte = 8 / n_bits, now = get_counter(block, n_bits, i);
    unsigned char *const byte = (unsigned char *)block + i / n_of_byte;

    value = MIN(value, (1u << n_bits) - 1);
    if (value > now)
        *byte = (unsigned char)(*byte + ((value - now) << i % n_of_byte * n_bits));
}

/* A block of n has the keys of an n-th of all hashes, and the low bits of a hash choose counters in
 * any number of blocks. So the counters of a block are merged into each block here that has some of
 * the same hashes. No counter of a key becomes less than it was there, up to what counters here can
 * count to, and so neither does the key's count. */
void count_admission_merge(RubatoAdmission *base, size_t n_all, size_t first, size_t n,
                           const uint64_t *words)
{
    CountAdmission *admission = (CountAdmission *)base;
    const unsigned n_bits = n_bits_of(n_all), n_of_word = BLOCK_COUNTERS / n_bits;
    const uint64_t n_blocks = admission->n_blocks;
    const uint64_t n_others = MAX(1, n_all / WORDS_OF_LINE * WORDS_OF_LINE / n_bits);

    for (size_t i = 0; i < n && first + i < n_others * n_bits; i++) {
        const unsigned __int128 block = (first + i) / n_bits;
        const uint64_t begin = (uint64_t)(block * n_blocks / n_others);
        const uint64_t end = (uint64_t)(((block + 1) * n_blocks + n_others - 1) / n_others);
        const unsigned from = (unsigned)((first + i) % n_bits) * n_of_word;

        for (uint64_t mine = begin; mine < end && words[i] != 0; mine++)
            for (unsigned k = 0; k < n_of_word; k++)
                raise_counter((uint64_t *)(void *)admission->lines + mine * admission->n_bits,
                              admission->n_bits, from + k, get_counter(&words[i], n_bits, k));
    }
}

const RubatoAdmissionOps count_admission_ops = {
    .name = "count",
    .check = check,
    .create = create,
    .destroy = destroy,
    .admits = admits,
    .prefetch = prefetch,
    .memory = memory,
};
