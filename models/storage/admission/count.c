/* The admit_count-th Add to a key makes its row.
 *
 * The Adds are counted in a sketch: a counting Bloom filter (Fan, Cao, Almeida, Broder, IEEE/ACM
 * ToN 8(3), 2000) whose counters of a key all lie in one cache line (Putze, Sanders, Singler, JEA
 * 14, 2009), counted conservatively (Estan, Varghese, TOCS 21(3), 2003): of a key's counters only
 * the least grow. The least is the key's count. Unless counts age, it is never too low; it is too
 * high when other keys share all of the key's counters. So a key may have its row too early, and
 * never too late.
 *
 *     line     64 bytes, chosen by the upper half of a key's hash
 *     counter  a byte; 4 of a line's 64 are the key's, chosen by 6 bits each
 *
 * Keys that never come again fill a sketch, until it admits all keys. With admit_halve_after,
 * counts age, as in TinyLFU (Einziger, Friedman, Manes, ACM Trans. Storage 13(4), 2017). After
 * each so many counted Adds all counters are halved, a line at each of the next counted Adds: no
 * Add waits for more than that. The number of refused Adds says which line is next. It goes along
 * with a part that moves, and into snapshots; so a replica halves the same lines.
 *
 * An evicted key is admitted again by its next Add, unless its count has aged.
 *
 * Thread: the shard's present owner. */
#include <rubato/error.h>
#include <sys/mman.h>

#include "io/key_hash.h"
#include "models/spec.h"
#include "models/storage/admission/admission.h"
#include "models/storage/memory_home.h"

#define LINE_BYTES 64u
#define N_COUNTERS 4u
#define COUNTER_BITS 6u /* 2^6 are in a line */
#define MAX_COUNT UINT8_MAX

typedef struct {
    RubatoAdmission base;
    KeyHash key_hash;
    uint8_t count;
    uint64_t n_lines;
    uint64_t halve_after; /* n_lines at least; 0: never */
    unsigned char *lines; /* pages of their own, which are touched as they are needed */
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

static RubatoAdmission *create(const RubatoAdmissionSetup *setup, GError **error)
{
    const RubatoTableSpec *spec = setup->spec;
    const uint64_t n_lines = MAX(1, spec->admit_bytes / LINE_BYTES);
    void *lines = mmap(NULL, n_lines * LINE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CountAdmission *admission;

    if (lines == MAP_FAILED) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for admit_bytes, %" G_GUINT64_FORMAT " in this part",
                    spec->name, n_lines * LINE_BYTES);
        return NULL;
    }
    memory_home_take(memory_home(), lines, n_lines * LINE_BYTES);
    (void)madvise(lines, n_lines * LINE_BYTES, MADV_HUGEPAGE); /* keys are all over it */
    admission = g_new0(CountAdmission, 1);
    admission->key_hash = key_hash_make(setup->seed);
    admission->count = (uint8_t)spec->admit_count;
    admission->n_lines = n_lines;
    if (spec->admit_halve_after > 0)
        admission->halve_after = MAX(spec->admit_halve_after, n_lines);
    admission->lines = lines;
    return &admission->base;
}

static void destroy(RubatoAdmission *base)
{
    CountAdmission *admission = (CountAdmission *)base;

    munmap(admission->lines, admission->n_lines * LINE_BYTES);
    g_free(admission);
}

static unsigned char *line_of(const CountAdmission *admission, uint64_t h)
{
    const uint64_t line = (uint64_t)((unsigned __int128)h * admission->n_lines >> 64);

    return admission->lines + line * LINE_BYTES;
}

static void prefetch(const RubatoAdmission *base, RubatoKey key)
{
    const CountAdmission *admission = (const CountAdmission *)base;

    __builtin_prefetch(line_of(admission, key_hash(&admission->key_hash, key)), 1);
}

/* Halves the line whose turn it is, if one is due. Apart from admits(), so that Adds to a sketch
 * that does not age save no registers for it. */
static void __attribute__((noinline)) age(const CountAdmission *admission)
{
    const uint64_t n_counted = admission->base.n_refused + 1; /* which counts this Add only later */
    const uint64_t line = n_counted % admission->halve_after;
    uint64_t *words;

    if (line >= admission->n_lines || n_counted < admission->halve_after)
        return;
    words = (uint64_t *)(void *)(admission->lines + line * LINE_BYTES);
    for (size_t i = 0; i < LINE_BYTES / sizeof *words; i++)
        words[i] = words[i] >> 1 & UINT64_C(0x7f7f7f7f7f7f7f7f);
}

/* Storages find keys by other bits of a hash with another seed. */
static bool admits(RubatoAdmission *base, RubatoKey key)
{
    CountAdmission *admission = (CountAdmission *)base;
    const uint64_t h = key_hash(&admission->key_hash, key);
    unsigned char *counters = line_of(admission, h);
    unsigned char *mine[N_COUNTERS];
    uint8_t least = MAX_COUNT;

    for (unsigned i = 0; i < N_COUNTERS; i++) {
        mine[i] = counters + (h >> i * COUNTER_BITS & (LINE_BYTES - 1));
        least = MIN(least, *mine[i]);
    }
    if (least + 1 >= admission->count)
        return true;
    for (unsigned i = 0; i < N_COUNTERS; i++) /* without a jump that nobody can predict */
        *mine[i] = (unsigned char)(*mine[i] + (*mine[i] == least));
    if (admission->halve_after > 0)
        age(admission);
    return false;
}

static uint64_t *memory(RubatoAdmission *base, size_t *n_words)
{
    CountAdmission *admission = (CountAdmission *)base;

    *n_words = admission->n_lines * LINE_BYTES / sizeof(uint64_t);
    return (uint64_t *)(void *)admission->lines;
}

/* Of each of the eight bytes the larger one. */
static void take_larger(unsigned char *counters, const unsigned char *others)
{
    for (size_t i = 0; i < sizeof(uint64_t); i++)
        counters[i] = MAX(counters[i], others[i]);
}

/* A line of n has the keys of an n-th of all hashes, and the low bits of a hash choose counters in
 * any number of lines. So the counters of a line are merged into each line here that has some of
 * the same hashes. No counter of a key becomes less than it was there, and neither does its count.
 */
void count_admission_merge(RubatoAdmission *base, size_t n_all, size_t first, size_t n,
                           const uint64_t *words)
{
    const size_t line_words = LINE_BYTES / sizeof(uint64_t);
    CountAdmission *admission = (CountAdmission *)base;
    const uint64_t n_lines = admission->n_lines, n_others = MAX(1, n_all / line_words);

    const unsigned char *counters = (const unsigned char *)words;

    for (size_t i = 0; i < n && first + i < n_others * line_words; i++) {
        const unsigned __int128 line = (first + i) / line_words;
        const uint64_t begin = (uint64_t)(line * n_lines / n_others);
        const uint64_t end = (uint64_t)(((line + 1) * n_lines + n_others - 1) / n_others);
        const size_t at = (first + i) % line_words * sizeof(uint64_t);

        for (uint64_t mine = begin; mine < end; mine++)
            take_larger(admission->lines + mine * LINE_BYTES + at, counters);
        counters += sizeof *words;
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
