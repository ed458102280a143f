/* BSP: a Get at clock c sees exactly the Adds of the clocks before c.
 *
 * Adds are kept, ordered by clock, worker and arrival, until the min clock has passed theirs; Gets
 * are parked until it has reached theirs. A worker that only adds may be ahead of one that gets, so
 * Gets of several clocks may be parked at once. When the min clock jumps, Gets and Adds therefore
 * take turns: the Gets of clock c come after the Adds of c - 1 and before those of c. The order of
 * the Adds depends only on clocks and workers, so sums of floats are the same in every run. A
 * change of a hyper-parameter comes before the Adds of its clock, so it too holds for the same Adds
 * in every run. Where the table aggregates, the Adds of a clock are summed in that order and
 * applied as one.
 *
 * Clocks may come late, with the next Get: nothing else shows the Adds that they release. Adds may
 * come later still, in the same order, when the min clock has passed theirs: then they are applied
 * at once.
 *
 * If a worker is lost with its node, what is kept of its unfinished clock is not applied when that
 * clock passes.
 *
 * Thread: the shard's present owner. Between two ops no Add of a clock below the min clock is kept,
 * and no Get of a clock up to it is parked. */
#include <rubato/model_ops.h>

#include "models/aggregate.h"
#include "models/model.h"
#include "models/request_heap.h"

typedef struct {
    RubatoModel base;
    RequestHeap parked; /* Gets */
    RequestHeap kept;   /* copies of Adds */
    const RubatoTableSpec *spec;
    Aggregate *aggregate; /* NULL: the table does not aggregate, or nothing was added yet */
} BspModel;

static RubatoModel *create(const RubatoModelSetup *setup, GError **error)
{
    BspModel *bsp = g_new0(BspModel, 1);

    (void)error;
    bsp->spec = setup->spec;
    return &bsp->base;
}

static void destroy(RubatoModel *model)
{
    BspModel *bsp = (BspModel *)model;

    for (RubatoRequest *request; (request = request_heap_pop(&bsp->parked)) != NULL;)
        rubato_model_drop(model, request);
    for (RubatoRequest *request; (request = request_heap_pop(&bsp->kept)) != NULL;)
        rubato_model_discard(model, request);
    request_heap_clear(&bsp->parked);
    request_heap_clear(&bsp->kept);
    aggregate_free(bsp->aggregate);
    g_free(bsp);
}

static void get(RubatoModel *model, RubatoRequest *request)
{
    BspModel *bsp = (BspModel *)model;

    if (request->clock <= rubato_model_min_clock(model))
        rubato_model_answer(model, request);
    else if (!request_heap_push(&bsp->parked, request))
        rubato_model_starve(model, request);
}

/* Without memory the Add is lost, and the task fails. */
static void keep(BspModel *bsp, const RubatoRequest *request)
{
    RubatoRequest *kept = rubato_model_keep(&bsp->base, request);

    if (kept == NULL || request_heap_push(&bsp->kept, kept))
        return;
    rubato_model_discard(&bsp->base, kept);
    rubato_model_starve(&bsp->base, NULL);
}

static void add(RubatoModel *model, RubatoRequest *request)
{
    BspModel *bsp = (BspModel *)model;

    if (request->clock < rubato_model_min_clock(model))
        rubato_model_apply(model, request);
    else
        keep(bsp, request);
    rubato_model_finish(model, request);
}

/* Whether a kept request is not of a lost worker's unfinished clock. */
static bool counts(const BspModel *bsp, const RubatoRequest *kept)
{
    return G_LIKELY(bsp->base.lost == NULL) || !rubato_model_is_of_lost(&bsp->base, kept);
}

/* Applies the first of the kept Adds. */
static void release(BspModel *bsp)
{
    RubatoRequest *released = request_heap_pop(&bsp->kept);

    if (counts(bsp, released))
        rubato_model_apply(&bsp->base, released);
    rubato_model_discard(&bsp->base, released);
}

static void apply_sums(BspModel *bsp, RubatoRequest *adds)
{
    bool has_all = true;

    if (adds == NULL || aggregate_apply_sorted(bsp->aggregate, adds))
        return;
    for (const RubatoRequest *add = adds; add != NULL; add = add->next)
        has_all &= aggregate_take(bsp->aggregate, add);
    if (!has_all)
        rubato_model_starve(&bsp->base, NULL);
    aggregate_apply(bsp->aggregate);
}

/* Applies all that is kept of the first clock, its Adds as one. */
static void release_clock(BspModel *bsp)
{
    const uint64_t clock = request_heap_first(&bsp->kept)->clock;
    RubatoRequest *adds = NULL, **end = &adds;
    const RubatoRequest *first;

    if (bsp->aggregate == NULL)
        bsp->aggregate = aggregate_new(bsp->spec, bsp->base.shard);
    while ((first = request_heap_first(&bsp->kept)) != NULL && first->clock == clock) {
        if (first->kind != RUBATO_REQUEST_ADD || !counts(bsp, first)) {
            release(bsp);
            continue;
        }
        *end = request_heap_pop(&bsp->kept);
        end = &(*end)->next;
        *end = NULL;
    }
    apply_sums(bsp, adds);
    for (RubatoRequest *next; adds != NULL; adds = next) {
        next = adds->next;
        rubato_model_discard(&bsp->base, adds);
    }
}

static void advance(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to)
{
    BspModel *bsp = (BspModel *)model;
    const uint64_t min = rubato_model_min_clock(model);
    const bool aggregates = bsp->spec->aggregate != RUBATO_AGGREGATE_NONE;

    (void)source;
    (void)from;
    (void)to;
    for (;;) {
        const RubatoRequest *parked = request_heap_first(&bsp->parked);
        const RubatoRequest *kept = request_heap_first(&bsp->kept);
        const bool may_answer = parked != NULL && parked->clock <= min;
        const bool may_apply = kept != NULL && kept->clock < min;

        if (may_answer && (!may_apply || parked->clock <= kept->clock)) {
            rubato_model_answer(model, request_heap_pop(&bsp->parked));
        } else if (may_apply) {
            (aggregates ? release_clock : release)(bsp);
        } else {
            break;
        }
    }
}

const RubatoModelOps bsp_model_ops = {
    .name = "bsp",
    .traits = { .lead = RUBATO_LEAD_NONE, .lazy_clocks = true, .applies_by_clock = true },
    .create = create,
    .destroy = destroy,
    .get = get,
    .add = add,
    .advance = advance,
};
