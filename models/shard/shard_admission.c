/* Shards of tables that do not admit all keys.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include <rubato/error.h>

#include "models/shard/shard_private.h"
#include "models/spec.h"

/* Refused keys of a narrow table have several rows in turn: an Add to a row that was just written
 * waits for the write. */
#define REFUSED_ROWS 8u /* a power of two */
#define NARROW_ROW_BYTES 64u

/* Words in front of the admission's memory. */
enum { WORD_ADMITTED, WORD_REFUSED, WORD_SEED, N_FIRST_WORDS };

/* (transfer full) */
static RubatoAdmission *make(const RubatoShard *shard, uint64_t seed, GError **error)
{
    const RubatoAdmissionSetup setup = { .spec = shard->spec, .seed = seed };

    return admission_new(admission_find(spec_admit_name(shard->spec)), &setup, error);
}

/* It comes into snapshots, and must not tell the table's seed, which keeps who sends keys from
 * choosing where they go. The same on all nodes. */
static uint64_t derive_seed(uint64_t hash_seed)
{
    g_autofree char *text = g_strdup_printf("admission %016" G_GINT64_MODIFIER "x", hash_seed);
    g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);

    digest[16] = '\0'; /* as many digits as a number has */
    return g_ascii_strtoull(digest, NULL, 16);
}

bool shard_make_refused(RubatoShard *shard)
{
    shard->n_refused_rows = shard->stride <= NARROW_ROW_BYTES ? REFUSED_ROWS : 1;
    if (shard->refused_rows == NULL)
        shard->refused_rows = g_try_malloc(shard->stride * shard->n_refused_rows);
    return shard->refused_rows != NULL;
}

bool shard_make_admission(RubatoShard *shard, GError **error)
{
    if (admission_find(spec_admit_name(shard->spec)) == NULL)
        return true;
    if (!shard_make_refused(shard)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "table %s: no memory for a row",
                    shard->spec->name);
        return false;
    }
    shard->admission_seed = derive_seed(shard->hash_seed);
    shard->admission = make(shard, shard->admission_seed, error);
    return shard->admission != NULL;
}

uint64_t shard_admission_bytes(const RubatoShard *shard)
{
    size_t n_words = 0;

    if (shard->admission != NULL)
        (void)admission_memory(shard->admission, &n_words);
    return n_words * sizeof(uint64_t);
}

bool shard_find_or_admit_watched(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    if (shard->expiry != NULL)
        return shard_find_to_write(shard, shard->admission, keys, n, rows);
    if (shard->ops->find_or_admit(shard->storage, shard->admission, keys, n, rows))
        return true;
    shard_starve(shard);
    return false;
}

bool shard_find_or_admit(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    if (G_UNLIKELY(shard->is_watched))
        shard_watch(shard, &(RubatoKeys){ .keys = keys, .n = n });
    return shard_find_or_admit_watched(shard, keys, n, rows);
}

/* The rows begin anew for each block, so that deltas of no use never sum up beyond what the update
 * rule expects of a row. */
void shard_fill_refused(RubatoShard *shard, void **rows, size_t n)
{
    unsigned char *const first = shard->refused_rows;
    const size_t mask = shard->n_refused_rows - 1;
    size_t n_refused = 0;

    for (size_t i = 0; i < n; i++)
        n_refused += rows[i] == NULL;
    if (n_refused == 0)
        return;
    rubato_init_row(&shard->init, 0, first);
    for (size_t i = 1; i < shard->n_refused_rows; i++)
        memcpy(first + i * shard->stride, first, shard->stride);
    for (size_t i = 0; i < n; i++) { /* without a jump that nobody can predict */
        const uintptr_t refused = -(uintptr_t)(rows[i] == NULL);

        rows[i] = (void *)((uintptr_t)rows[i] |
                           ((uintptr_t)(first + (i & mask) * shard->stride) & refused));
    }
}

ShardAdmissions shard_admissions(const RubatoShard *shard)
{
    if (shard->admission == NULL)
        return (ShardAdmissions){ 0 };
    return (ShardAdmissions){ .n_admitted = shard->admission->n_admitted,
                              .n_refused = shard->admission->n_refused };
}

/* ---- what goes along with a part that moves, and into snapshots ---- */

size_t shard_n_admission_words(const RubatoShard *shard)
{
    size_t n_words;

    if (shard->admission == NULL)
        return 0;
    (void)admission_memory(shard->admission, &n_words);
    return N_FIRST_WORDS + n_words;
}

static uint64_t get_first(const RubatoShard *shard, size_t i)
{
    return i == WORD_ADMITTED  ? shard->admission->n_admitted
           : i == WORD_REFUSED ? shard->admission->n_refused
                               : shard->admission_seed;
}

bool shard_knows_admission_words(const RubatoShard *shard)
{
    return shard->admission == NULL || admission_knows_words(shard->admission);
}

static void list(GArray *words, AdmissionWords some)
{
    for (size_t i = 0; i < some.n; i++) {
        const uint64_t word = N_FIRST_WORDS + some.first + i;

        g_array_append_val(words, word);
    }
}

void shard_list_asked_words(const RubatoShard *shard, RubatoKey key, GArray *words)
{
    list(words, admission_words_of(shard->admission, key));
}

void shard_list_refused_words(const RubatoShard *shard, uint64_t n_before, GArray *words)
{
    for (uint64_t i = n_before; i < shard->admission->n_refused; i++)
        list(words, admission_words_aged(shard->admission, i + 1));
    for (uint64_t i = WORD_ADMITTED; i <= WORD_REFUSED; i++)
        g_array_append_val(words, i);
}

bool shard_set_admission_words(RubatoShard *shard, const ShardWord *words, size_t n)
{
    const size_t n_all = shard_n_admission_words(shard);

    for (size_t i = 0; i < n; i++) {
        if (words[i].at >= n_all || words[i].at == WORD_SEED)
            return false;
        shard_set_admission(shard, (size_t)words[i].at, 1, &words[i].word);
    }
    return true;
}

/* It begins anew. */
static void restart(RubatoShard *shard, uint64_t seed)
{
    RubatoAdmission *const fresh = make(shard, seed, NULL);

    if (fresh == NULL) {
        shard_starve(shard);
        return;
    }
    fresh->n_admitted = shard->admission->n_admitted;
    fresh->n_refused = shard->admission->n_refused;
    admission_note_change(fresh);
    admission_free(shard->admission);
    shard->admission = fresh;
    shard->admission_seed = seed;
}

static void set_seed(RubatoShard *shard, uint64_t seed)
{
    if (seed != shard->admission_seed)
        restart(shard, seed);
}

void shard_get_admission(const RubatoShard *shard, size_t first, size_t n, uint64_t *words)
{
    const size_t n_first = first < N_FIRST_WORDS ? MIN(n, N_FIRST_WORDS - first) : 0;
    size_t n_memory;
    const uint64_t *const memory = admission_memory(shard->admission, &n_memory);

    for (size_t i = 0; i < n_first; i++)
        words[i] = get_first(shard, first + i);
    if (n > n_first)
        memcpy(words + n_first, memory + (first + n_first - N_FIRST_WORDS),
               (n - n_first) * sizeof *words);
}

void shard_set_admission(RubatoShard *shard, size_t first, size_t n, const uint64_t *words)
{
    const ShardAdmissionWords all = { .n_all = shard_n_admission_words(shard),
                                      .first = first,
                                      .n = n,
                                      .words = words,
                                      .is_same = true,
                                      .counts = true };

    for (size_t i = first; i < first + n && i < WORD_SEED; i++)
        *(i == WORD_ADMITTED ? &shard->admission->n_admitted : &shard->admission->n_refused) = 0;
    (void)shard_merge_admission(shard, &all); /* as many words as there are */
}

void shard_reset_admission(RubatoShard *shard)
{
    shard->admission->n_admitted = shard->admission->n_refused = 0;
    restart(shard, shard->admission_seed);
}

static void merge_first(RubatoShard *shard, size_t i, uint64_t word, bool counts)
{
    if (i == WORD_SEED)
        set_seed(shard, word);
    else if (counts)
        *(i == WORD_ADMITTED ? &shard->admission->n_admitted : &shard->admission->n_refused) +=
            word;
}

bool shard_merge_admission(RubatoShard *shard, const ShardAdmissionWords *words)
{
    const size_t first = words->first, n = words->n;
    const size_t n_first = first < N_FIRST_WORDS ? MIN(n, N_FIRST_WORDS - first) : 0;
    uint64_t *memory;
    size_t n_memory;

    for (size_t i = 0; i < n_first; i++)
        merge_first(shard, first + i, words->words[i], words->counts);
    admission_note_change(shard->admission);
    memory = admission_memory(shard->admission, &n_memory);
    if (n == n_first)
        return true;
    if (!words->is_same || words->n_all != N_FIRST_WORDS + n_memory)
        return admission_merge(shard->admission, words->n_all - N_FIRST_WORDS,
                               first + n_first - N_FIRST_WORDS, n - n_first,
                               words->words + n_first);
    memcpy(memory + (first + n_first - N_FIRST_WORDS), words->words + n_first,
           (n - n_first) * sizeof *memory);
    return true;
}
