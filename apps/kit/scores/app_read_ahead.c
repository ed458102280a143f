/* A ring of batches: step i has slot i mod n_slots. Several tables may ask for batches, each at its
 * own step, as long as none is more than n_ahead steps before another.
 *
 * Thread: the worker's. */
#include "apps/kit/scores/app_read_ahead.h"

typedef struct {
    RubatoBatch *batch;
    AppScaledBatch scaled; /* if values are standardised */
} Slot;

struct AppReadAhead {
    RubatoReader *reader;
    const AppFeatures *scaling; /* NULL: none */
    GError *error;              /* why there are no more */
    uint64_t n_read;
    bool ended;
    uint32_t n_slots;
    Slot slots[];
};

AppReadAhead *app_read_ahead_new(RubatoReader *reader, uint32_t n_ahead, const AppFeatures *scaling)
{
    if (reader == NULL)
        return NULL;
    const uint32_t n_slots = n_ahead + 1;
    AppReadAhead *ahead = g_malloc0(sizeof *ahead + n_slots * sizeof ahead->slots[0]);

    ahead->reader = reader;
    ahead->scaling = scaling;
    ahead->n_slots = n_slots;
    return ahead;
}

void app_read_ahead_free(AppReadAhead *ahead)
{
    if (ahead == NULL)
        return;
    for (uint32_t i = 0; i < ahead->n_slots; i++) {
        rubato_batch_free(ahead->slots[i].batch);
        app_scaled_batch_clear(&ahead->slots[i].scaled);
    }
    rubato_reader_free(ahead->reader);
    g_clear_error(&ahead->error);
    g_free(ahead);
}

uint64_t app_read_ahead_skip(AppReadAhead *ahead, uint64_t n_batches)
{
    RubatoBatch **const batch = &ahead->slots[0].batch;
    uint64_t n_rows = 0;

    for (; n_batches > 0 && !ahead->ended; n_batches--) {
        ahead->ended = !rubato_reader_next(ahead->reader, batch, &ahead->error);
        n_rows += ahead->ended ? 0 : (*batch)->n_rows;
    }
    return n_rows;
}

static bool fill(AppReadAhead *ahead, Slot *slot)
{
    return rubato_reader_next(ahead->reader, &slot->batch, &ahead->error) &&
           (ahead->scaling == NULL ||
            app_scaled_batch_fill(&slot->scaled, ahead->scaling, slot->batch, &ahead->error));
}

const RubatoBatch *app_read_ahead_batch(AppReadAhead *ahead, uint64_t step)
{
    const Slot *slot = &ahead->slots[step % ahead->n_slots];

    while (!ahead->ended && ahead->n_read <= step) {
        if (fill(ahead, &ahead->slots[ahead->n_read % ahead->n_slots]))
            ahead->n_read++;
        else
            ahead->ended = true;
    }
    if (step >= ahead->n_read)
        return NULL;
    return ahead->scaling != NULL ? &slot->scaled.batch : slot->batch;
}

bool app_read_ahead_ended(AppReadAhead *ahead, GError **error)
{
    if (ahead->error == NULL)
        return true;
    g_propagate_error(error, g_steal_pointer(&ahead->error));
    return false;
}

bool app_read_ahead_tell(uint64_t step, RubatoIteration *keys, void *ahead)
{
    const RubatoBatch *batch = app_read_ahead_batch(ahead, step);

    if (batch == NULL)
        return false;
    *keys = (RubatoIteration){ .keys = batch->keys, .n = batch->n_keys };
    return true;
}
