/* Shards of tables that do not admit all keys.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include <rubato/error.h>

#include "models/shard/shard_private.h"
#include "models/spec.h"

#define N_COUNTS 2u /* words in front of the admission's memory: n_admitted and n_refused */

bool shard_make_admission(RubatoShard *shard, GError **error)
{
    const RubatoAdmissionOps *ops = admission_find(spec_admit_name(shard->spec));
    const RubatoAdmissionSetup setup = { .spec = shard->spec, .seed = ~shard->hash_seed };

    if (ops == NULL)
        return true;
    shard->refused_row = g_try_malloc(shard->stride);
    if (shard->refused_row == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "table %s: no memory for a row",
                    shard->spec->name);
        return false;
    }
    shard->admission = admission_new(ops, &setup, error);
    return shard->admission != NULL;
}

uint64_t shard_admission_bytes(const RubatoShard *shard)
{
    size_t n_words = 0;

    if (shard->admission != NULL)
        (void)admission_memory(shard->admission, &n_words);
    return n_words * sizeof(uint64_t);
}

bool shard_find_or_admit(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    if (G_UNLIKELY(shard->is_watched))
        shard_watch(shard, &(RubatoKeys){ .keys = keys, .n = n });
    if (shard->expiry != NULL)
        return shard_find_to_write(shard, shard->admission, keys, n, rows);
    if (shard->ops->find_or_admit(shard->storage, shard->admission, keys, n, rows))
        return true;
    shard_starve(shard);
    return false;
}

/* The row begins anew for each block, so that deltas of no use never sum up beyond what the update
 * rule expects of a row. */
void shard_fill_refused(RubatoShard *shard, void **rows, size_t n)
{
    bool is_ready = false;

    for (size_t i = 0; i < n; i++) {
        if (rows[i] != NULL)
            continue;
        if (!is_ready)
            rubato_init_row(&shard->init, 0, shard->refused_row);
        is_ready = true;
        rows[i] = shard->refused_row;
    }
}

ShardAdmissions shard_admissions(const RubatoShard *shard)
{
    if (shard->admission == NULL)
        return (ShardAdmissions){ 0 };
    return (ShardAdmissions){ .n_admitted = shard->admission->n_admitted,
                              .n_refused = shard->admission->n_refused };
}

/* ---- what goes along with a part that moves ---- */

size_t shard_n_admission_words(const RubatoShard *shard)
{
    size_t n_words;

    if (shard->admission == NULL)
        return 0;
    (void)admission_memory(shard->admission, &n_words);
    return N_COUNTS + n_words;
}

static uint64_t *word_at(const RubatoShard *shard, size_t i)
{
    size_t n_words;

    if (i < N_COUNTS)
        return i == 0 ? &shard->admission->n_admitted : &shard->admission->n_refused;
    return admission_memory(shard->admission, &n_words) + (i - N_COUNTS);
}

void shard_get_admission(const RubatoShard *shard, size_t first, size_t n, uint64_t *words)
{
    for (size_t i = 0; i < n; i++)
        words[i] = *word_at(shard, first + i);
}

void shard_set_admission(RubatoShard *shard, size_t first, size_t n, const uint64_t *words)
{
    for (size_t i = 0; i < n; i++)
        *word_at(shard, first + i) = words[i];
}
