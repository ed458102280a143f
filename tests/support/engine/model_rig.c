/* Drives a model by hand. It checks the outbox: an Add and an announcement must come out in the
 * call that brought them, a Get once. */
#include "tests/support/engine/model_rig.h"
#include "tests/support/engine/fitting_spec.h"

#include <check.h>
#include <string.h>

#include "models/shard/shard.h"
#include "models/spec.h"

void rig_init(ModelRig *rig, const RubatoTableSpec *spec, uint32_t n_workers)
{
    g_autoptr(GError) error = NULL;

    *rig = (ModelRig){ .spec = *spec, .n_workers = n_workers };
    rig->spec.name = "rig";
    rig->spec.dtype = RUBATO_I64;
    rig->spec.n_keys = RIG_KEYS;
    rig->spec = fitting_spec(rig->spec);
    ck_assert_msg(spec_check(&rig->spec, &error), "%s", error == NULL ? "" : error->message);
    rig->shard = shard_new(&rig->spec, 0, RIG_KEYS, &error);
    ck_assert_ptr_nonnull(rig->shard);

    const RubatoModelSetup setup = { .spec = &rig->spec,
                                     .n_workers = n_workers,
                                     .n_keys = RIG_KEYS };
    rig->model = model_new(&setup, rig->shard, n_workers, &error);
    ck_assert_ptr_nonnull(rig->model);
}

void rig_clear(ModelRig *rig)
{
    ck_assert_ptr_null(model_free(rig->model));
    shard_free(rig->shard);
}

/* The Gets that have been answered; anything else is `expected`, and comes once. */
static void take_answers(ModelRig *rig, const RubatoRequest *expected)
{
    bool found = expected == NULL;

    for (RubatoRequest *request = model_take_answered(rig->model), *next; request != NULL;
         request = next) {
        next = request->next;
        if (request == expected) {
            ck_assert(!found);
            found = true;
            continue;
        }

        RigGet *get = (RigGet *)request;
        ck_assert(!get->is_answered);
        get->is_answered = true;
    }
    ck_assert(found);
}

static void prepare_get(const ModelRig *rig, RigGet *get, uint32_t worker, uint64_t clock,
                        const RubatoKey *keys, size_t n)
{
    ck_assert_uint_le(n, G_N_ELEMENTS(get->keys));
    memset(get, 0, sizeof(*get));
    if (keys != NULL)
        memcpy(get->keys, keys, n * sizeof(*keys));
    get->request = (RubatoRequest){
        .worker = worker,
        .clock = clock,
        .keys = { .keys = get->keys, .n = keys == NULL ? 1 : n },
        .output = rig->model->make_room == NULL ? get->values : NULL,
    };
}

void rig_get(ModelRig *rig, RigGet *get, uint32_t worker, uint64_t clock, const RubatoKey *keys,
             size_t n)
{
    prepare_get(rig, get, worker, clock, keys, n);
    model_get(rig->model, &get->request);
    take_answers(rig, NULL);
}

void rig_iterate(ModelRig *rig, RigGet *get, uint32_t worker, uint64_t clock, const RubatoKey *keys,
                 size_t n)
{
    prepare_get(rig, get, worker, clock, keys, n);
    model_iterate(rig->model, &get->request);
    take_answers(rig, NULL);
}

void rig_add(ModelRig *rig, uint32_t worker, uint64_t clock, RubatoKey key, int64_t delta)
{
    RubatoRequest request = {
        .worker = worker,
        .clock = clock,
        .keys = { .keys = &key, .n = 1 },
        .input = &delta,
    };

    model_add(rig->model, &request);
    take_answers(rig, &request);
    delta = -12345; /* a model that still read it would now read a wrong value */
    key = RIG_KEYS - 1;
}

void rig_announce_part(ModelRig *rig, uint32_t worker, uint64_t clock, const RubatoKey *keys,
                       size_t n, uint64_t n_all)
{
    RubatoKey *copy = g_new(RubatoKey, n + 1); /* a list, even of no keys */
    RubatoRequest request = {
        .worker = worker, .clock = clock, .keys = { .keys = copy, .n = n }, .n_announced = n_all
    };

    if (n > 0)
        memcpy(copy, keys, n * sizeof(*keys));
    model_announce(rig->model, &request);
    take_answers(rig, &request);
    g_free(copy); /* a model that still read it would use freed memory */
}

void rig_announce(ModelRig *rig, uint32_t worker, uint64_t clock, const RubatoKey *keys, size_t n)
{
    rig_announce_part(rig, worker, clock, keys, n, 0);
}

void rig_clock(ModelRig *rig, uint32_t worker, uint64_t clock)
{
    model_clock(rig->model, worker, clock);
    take_answers(rig, NULL);
}

int64_t rig_read(ModelRig *rig, RubatoKey key)
{
    const RubatoKeys keys = { .keys = &key, .n = 1 };
    int64_t value;

    shard_get(rig->shard, &keys, &value);
    return value;
}
