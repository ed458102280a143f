/* SSP(s): Adds are applied at once; a Get at clock c waits until the min clock is at least c - s.
 *
 * Thread: the shard's present owner. A Get that is too far ahead of the min clock is parked; parked
 * Gets are released in the order of their clocks. */
#include <rubato/model_ops.h>

#include "models/request_heap.h"

typedef struct {
    RubatoModel base;
    uint32_t staleness;
    RequestHeap parked;
} SspModel;

static RubatoModel *create(const RubatoModelSetup *setup, GError **error)
{
    SspModel *ssp = g_new0(SspModel, 1);

    (void)error;
    ssp->staleness = setup->spec->staleness;
    return &ssp->base;
}

static void destroy(RubatoModel *model)
{
    SspModel *ssp = (SspModel *)model;

    for (RubatoRequest *request; (request = request_heap_pop(&ssp->parked)) != NULL;)
        rubato_model_drop(model, request);
    request_heap_clear(&ssp->parked);
    g_free(ssp);
}

static bool may_be_answered(const SspModel *ssp, const RubatoRequest *request)
{
    const uint64_t min = rubato_model_min_clock(&ssp->base);

    return request->clock <= min || request->clock - min <= ssp->staleness;
}

static void get(RubatoModel *model, RubatoRequest *request)
{
    SspModel *ssp = (SspModel *)model;

    if (may_be_answered(ssp, request))
        rubato_model_answer(model, request);
    else if (!request_heap_push(&ssp->parked, request))
        rubato_model_starve(model, request);
}

static void add(RubatoModel *model, RubatoRequest *request)
{
    rubato_model_apply(model, request);
    rubato_model_finish(model, request);
}

static void advance(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to)
{
    SspModel *ssp = (SspModel *)model;
    const RubatoRequest *first;

    (void)source;
    (void)from;
    (void)to;
    while ((first = request_heap_first(&ssp->parked)) != NULL && may_be_answered(ssp, first))
        rubato_model_answer(model, request_heap_pop(&ssp->parked));
}

const RubatoModelOps ssp_model_ops = {
    .name = "ssp",
    .traits = { .lead = RUBATO_LEAD_STALENESS, .lazy_clocks = true, .rows_may_be_cached = true },
    .create = create,
    .destroy = destroy,
    .get = get,
    .add = add,
    .advance = advance,
};
