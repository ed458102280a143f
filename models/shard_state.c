/* Shards: what goes past the update rule, and what is not rows.
 *
 * Thread: the shard's present owner. Requests have been checked by shard_request_ok. */
#include "models/shard_private.h"
#include "models/update/rule.h"

size_t shard_subject_bytes(const RubatoShard *shard, RubatoSubject subject)
{
    switch (subject) {
    case RUBATO_SUBJECT_ROWS:
    case RUBATO_SUBJECT_VALUES:
        return shard->row_bytes;
    case RUBATO_SUBJECT_HYPER:
        return sizeof(double);
    case RUBATO_SUBJECT_STATE:
        return shard->stride - shard->row_bytes;
    case RUBATO_SUBJECT_KEYS:
        return sizeof(RubatoKey);
    case RUBATO_SUBJECT_BAD_GRADIENTS:
        return sizeof(BadCounts);
    case RUBATO_SUBJECT_INITIAL:
        break;
    }
    return 0;
}

static double load_number(const void *value)
{
    double number;

    memcpy(&number, value, sizeof number);
    return number;
}

bool shard_hyper_ok(const RubatoShard *shard, const RubatoKeys *keys, const void *value)
{
    return keys->n == 1 && keys->keys == NULL && keys->first < N_HYPERS &&
           rule_check_tuning(shard->spec, (RubatoHyper)keys->first, load_number(value), NULL);
}

static void set(RubatoShard *shard, const RubatoKeys *keys, const void *values)
{
    const unsigned char *from = values;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);

        if (!shard_find_or_create(shard, shard_take_block(keys, begin, n, block), n, rows))
            return;
        for (size_t i = 0; i < n; i++) {
            shard_copy_row(rows[i], from + keys_row(keys, begin + i) * shard->row_bytes,
                           shard->row_bytes);
            if (shard->stride > shard->row_bytes)
                init_state(&shard->init, rows[i]);
        }
    }
}

static void reset(RubatoShard *shard, const RubatoKeys *keys)
{
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = shard_take_block(keys, begin, n, block);

        shard_find(shard, some, n, rows);
        for (size_t i = 0; i < n; i++)
            if (rows[i] != NULL)
                rubato_init_row(&shard->init, some[i], rows[i]);
    }
}

static void get_state(RubatoShard *shard, const RubatoKeys *keys, void *states)
{
    const size_t bytes = shard->stride - shard->row_bytes;
    g_autofree unsigned char *fresh = g_try_malloc(shard->stride);
    unsigned char *to = states;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    if (fresh == NULL) {
        shard_starve(shard);
        return;
    }
    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);
        const RubatoKey *some = shard_take_block(keys, begin, n, block);

        shard_find(shard, some, n, rows);
        for (size_t i = 0; i < n; i++) {
            if (rows[i] == NULL)
                rubato_init_row(&shard->init, some[i], fresh);
            memcpy(to + keys_row(keys, begin + i) * bytes,
                   (rows[i] == NULL ? fresh : (unsigned char *)rows[i]) + shard->row_bytes, bytes);
        }
    }
}

static void set_state(RubatoShard *shard, const RubatoKeys *keys, const void *states)
{
    const size_t bytes = shard->stride - shard->row_bytes;
    const unsigned char *from = states;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);

        if (!shard_find_or_create(shard, shard_take_block(keys, begin, n, block), n, rows))
            return;
        for (size_t i = 0; i < n; i++)
            memcpy((unsigned char *)rows[i] + shard->row_bytes,
                   from + keys_row(keys, begin + i) * bytes, bytes);
    }
}

static void list(const RubatoShard *shard, const RubatoKeys *numbers, RubatoKey *keys)
{
    if (numbers->n > 0) /* of none only their count is wanted */
        shard->ops->list(shard->storage, numbers->first, numbers->n, keys);
}

void shard_read(RubatoShard *shard, const RubatoRequest *request)
{
    if (request->subject == RUBATO_SUBJECT_STATE)
        get_state(shard, &request->keys, request->values);
    else if (request->subject == RUBATO_SUBJECT_KEYS)
        list(shard, &request->keys, request->values);
    else if (request->subject == RUBATO_SUBJECT_BAD_GRADIENTS)
        bad_gradients_read(&shard->updater.bad, (size_t)request->keys.first, request->keys.n,
                           request->values);
    else
        shard_get(shard, &request->keys, request->values);
}

void shard_write(RubatoShard *shard, const RubatoRequest *request)
{
    switch (request->subject) {
    case RUBATO_SUBJECT_ROWS:
        shard_add_by(shard, request->worker, &request->keys, request->values);
        break;
    case RUBATO_SUBJECT_HYPER:
        updater_tune(&shard->updater, (RubatoHyper)request->keys.first,
                     load_number(request->values));
        break;
    case RUBATO_SUBJECT_VALUES:
        set(shard, &request->keys, request->values);
        break;
    case RUBATO_SUBJECT_STATE:
        set_state(shard, &request->keys, request->values);
        break;
    case RUBATO_SUBJECT_INITIAL:
        reset(shard, &request->keys);
        break;
    case RUBATO_SUBJECT_KEYS: /* no Add has these */
    case RUBATO_SUBJECT_BAD_GRADIENTS:
        break;
    }
}
