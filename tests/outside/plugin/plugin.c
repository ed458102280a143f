/* A plug-in file of an outside project: a model, a storage and an update rule. A test breaks them
 * by one line each.
 *
 * Thread: the shard's present owner. */
#include <rubato/mix.h>
#include <rubato/plugin.h>
#include <rubato/update_loops.h>
#include <string.h>

/* ---- the model "patient": SSP ---- */

typedef struct {
    RubatoModel base;
    uint32_t staleness;
    RubatoRequest *parked; /* chained by next */
} Patient;

static RubatoModel *create_model(const RubatoModelSetup *setup, GError **error)
{
    Patient *patient = g_new0(Patient, 1);

    (void)error;
    patient->staleness = setup->spec->staleness;
    return &patient->base;
}

static void destroy_model(RubatoModel *model)
{
    Patient *patient = (Patient *)model;

    for (RubatoRequest *request = patient->parked, *next; request != NULL; request = next) {
        next = request->next;
        rubato_model_drop(model, request);
    }
    g_free(patient);
}

static bool may_answer(const Patient *patient, const RubatoRequest *request)
{
    const uint64_t min = rubato_model_min_clock(&patient->base);

    return request->clock <= min || request->clock - min <= patient->staleness;
}

static void get(RubatoModel *model, RubatoRequest *request)
{
    Patient *patient = (Patient *)model;

    if (may_answer(patient, request)) {
        rubato_model_answer(model, request);
    } else {
        request->next = patient->parked;
        patient->parked = request;
    }
}

static void add(RubatoModel *model, RubatoRequest *request)
{
    rubato_model_apply(model, request);
    rubato_model_finish(model, request);
}

static void advance(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to)
{
    Patient *patient = (Patient *)model;
    RubatoRequest **link = &patient->parked;

    (void)source;
    (void)from;
    (void)to;
    while (*link != NULL) {
        RubatoRequest *request = *link;

        if (may_answer(patient, request)) {
            *link = request->next;
            rubato_model_answer(model, request);
        } else {
            link = &request->next;
        }
    }
}

static const RubatoModelOps patient_ops = {
    .name = "patient",
    .traits = { .lead = RUBATO_LEAD_STALENESS },
    .create = create_model,
    .destroy = destroy_model,
    .get = get,
    .add = add,
    .advance = advance,
};

/* ---- the storage "shelf": rows one by one, found by open addressing ---- */

typedef struct {
    RubatoStorage base;
    size_t row_bytes;
    const RubatoInit *init;
    uint32_t n_rows, n_slots; /* at most half of the slots are used */
    uint32_t *slots;          /* the number of a row, from 1 on; 0: free */
    RubatoKey *keys;          /* by number */
    void **rows;
} Shelf;

static uint32_t *slot_of(Shelf *shelf, RubatoKey key)
{
    uint32_t at = (uint32_t)rubato_mix64(key) % shelf->n_slots;

    while (shelf->slots[at] != 0 && shelf->keys[shelf->slots[at] - 1] != key)
        at = (at + 1) % shelf->n_slots;
    return &shelf->slots[at];
}

/* Twice as many slots. False: there is no memory. */
static bool grow(Shelf *shelf)
{
    const uint32_t n_slots = shelf->n_slots == 0 ? 64 : 2 * shelf->n_slots;
    RubatoKey *keys = g_try_renew(RubatoKey, shelf->keys, n_slots);

    shelf->keys = keys != NULL ? keys : shelf->keys;
    void **rows = keys == NULL ? NULL : g_try_renew(void *, shelf->rows, n_slots);
    shelf->rows = rows != NULL ? rows : shelf->rows;
    uint32_t *slots = rows == NULL ? NULL : g_try_new0(uint32_t, n_slots);
    if (slots == NULL)
        return false;
    g_free(shelf->slots);
    shelf->slots = slots;
    shelf->n_slots = n_slots;
    for (uint32_t number = 0; number < shelf->n_rows; number++)
        *slot_of(shelf, shelf->keys[number]) = number + 1;
    return true;
}

static RubatoStorage *create_storage(const RubatoStorageSetup *setup, GError **error)
{
    Shelf *shelf = g_new0(Shelf, 1);

    (void)error;
    shelf->row_bytes = setup->row_bytes;
    shelf->init = setup->init;
    return &shelf->base;
}

static void destroy_storage(RubatoStorage *storage)
{
    Shelf *shelf = (Shelf *)storage;

    for (uint32_t number = 0; number < shelf->n_rows; number++)
        g_free(shelf->rows[number]);
    g_free(shelf->slots);
    g_free(shelf->keys);
    g_free(shelf->rows);
    g_free(shelf);
}

static void *find_one(Shelf *shelf, RubatoKey key)
{
    const uint32_t number = shelf->n_slots == 0 ? 0 : *slot_of(shelf, key);

    return number == 0 ? NULL : shelf->rows[number - 1];
}

static void *make_one(Shelf *shelf, RubatoKey key)
{
    void *row = g_try_malloc(shelf->row_bytes);

    if (row == NULL || (shelf->n_rows == shelf->n_slots / 2 && !grow(shelf))) {
        g_free(row);
        return NULL;
    }
    rubato_init_row(shelf->init, key, row);
    shelf->keys[shelf->n_rows] = key;
    shelf->rows[shelf->n_rows] = row;
    *slot_of(shelf, key) = ++shelf->n_rows;
    return row;
}

static void find(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = find_one((Shelf *)storage, keys[i]);
}

static bool find_or_create(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    for (size_t i = 0; i < n; i++) {
        rows[i] = find_one((Shelf *)storage, keys[i]);
        if (rows[i] == NULL)
            rows[i] = make_one((Shelf *)storage, keys[i]);
        if (rows[i] == NULL)
            return false;
    }
    return true;
}

static void *run(RubatoStorage *storage, RubatoKey first, size_t n)
{
    (void)storage;
    (void)first;
    (void)n;
    return NULL;
}

static void list(const RubatoStorage *storage, uint64_t first, size_t n, RubatoKey *keys)
{
    const Shelf *shelf = (const Shelf *)storage;

    memcpy(keys, shelf->keys + first, n * sizeof *keys);
}

static void size(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes)
{
    const Shelf *shelf = (const Shelf *)storage;

    *n_rows = shelf->n_rows;
    *n_bytes = shelf->n_rows * shelf->row_bytes + shelf->n_slots * sizeof *shelf->slots;
}

static const RubatoStorageOps shelf_ops = {
    .name = "shelf",
    .create = create_storage,
    .destroy = destroy_storage,
    .find = find,
    .find_or_create = find_or_create,
    .run = run,
    .list = list,
    .size = size,
};

/* ---- the rule "heavy": velocity = momentum × velocity + gradient ---- */

#define DEFINE_STEP(suffix, type)                                                         \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row, \
                                          const type *restrict gradients, size_t width)   \
    {                                                                                     \
        const type rate = (type)update->rule.learning_rate;                               \
        const type momentum = (type)update->rule.momentum;                                \
        type *restrict velocity = row + width;                                            \
                                                                                          \
        for (size_t i = 0; i < width; i++) {                                              \
            velocity[i] = momentum * velocity[i] + gradients[i];                          \
            row[i] -= rate * velocity[i];                                                 \
        }                                                                                 \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
RUBATO_DEFINE_APPLY_ROWS

static uint32_t state_width(const RubatoUpdate *update)
{
    return update->width;
}

static const RubatoUpdateOps heavy_ops = {
    .name = "heavy",
    .traits = { .takes_gradients = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_MOMENTUM),
                .defaults = { .learning_rate = 0.01, .momentum = 0.9 } },
    .state_width = state_width,
    .apply_rows = apply_rows,
};

bool rubato_plugin_register(GError **error)
{
    return rubato_register_model(&patient_ops, error) &&
           rubato_register_storage(&shelf_ops, error) &&
           rubato_register_update_rule(&heavy_ops, error);
}
