/* SparseSSP(s, q): beyond the staleness bound, a Get waits only for workers that use its keys.
 *
 * Workers tell the keys of their iterations ahead of time. A Get at clock c, with min clock m:
 *
 *     c <= m + s        is answered, as under SSP(s);
 *     c <= m + s + q    is answered once no worker can still add to its keys at a clock up to
 *                       c - s - 1, which are the clocks that SSP would have waited for;
 *     beyond            waits for the min clock.
 *
 * In the middle case the first obstacle found holds it back: a worker that has not told (and not
 * finished) all of its iterations up to c - s - 1, because an untold iteration may use any key; or
 * a use of one of the keys in such an iteration. The Get is filed with that worker. It is examined
 * again when the obstacle is gone, that is, after an announcement or a clock of this one worker. So
 * most Gets are examined once or twice, however many workers there are. The min clock needs no
 * check of its own: when it has come to c - s, every obstacle is gone.
 *
 * An iteration t of a worker is finished when its clock is above t; its announcement of t is then
 * forgotten. A retired worker's clock is above everything. A worker that tells nothing is waited
 * for as under SSP(s).
 *
 * An announcement is kept as it came. Its keys are entered in `uses` when a Get first has to look
 * for them: most iterations are finished before that, and cost nothing more. `n_to_look_at` tells
 * the server how long that may take, so that no thread does it which has to return soon.
 *
 * A long announcement comes in pieces. Its keys are entered piece by piece, and the iteration
 * counts as told when all of them have come; if a piece is missing, it stays untold until it is
 * finished.
 *
 * Thread: the shard's present owner. Between two ops: `beyond` holds the Gets with a clock above
 * m + s + q; a Get filed with a worker has its obstacle there, unresolved; each kept
 * announcement and piece is of an unfinished iteration; `uses` holds those before each worker's
 * `to_enter`, and n_to_look_at counts the keys of the long ones from there on. */
#include <rubato/error.h>
#include <rubato/model_ops.h>
#include <stdlib.h>
#include <string.h>

#include "models/key_uses/key_uses.h"
#include "models/request_heap.h"
#include "models/spec.h"

/* A parked Get, and what it waits for from the worker that it is filed with. */
typedef struct {
    RubatoRequest *request;
    enum { UNTIL_FINISHED, UNTIL_TOLD } until;
    uint64_t iteration;
} Parked;

/* In a cache line of its own: on the processor of its worker it usually stays in the cache. */
typedef struct {
    _Alignas(64) uint64_t told; /* every iteration below it is told or finished */
    uint64_t n_come, n_all;   /* of iteration `told`, told in part: keys that have come, and all */
    RubatoRequest *announced; /* copies of what was told, iterations ascending */
    RubatoRequest **announced_end;
    RubatoRequest *to_enter; /* the first of them whose keys are not in `uses`; NULL: all are */
    Parked *parked;          /* as they came */
    uint32_t n_parked;
    uint32_t n_allocated;
} Worker;

typedef struct {
    RubatoModel base;
    _Alignas(64) uint64_t staleness; /* not beside what each announcement changes */
    uint64_t reach;                  /* staleness + speculation */
    uint32_t n_workers;
    KeyUses *uses;
    RequestHeap beyond;
    Worker workers[];
} SparseSspModel;

static RubatoModel *create(const RubatoModelSetup *setup, GError **error)
{
    const RubatoTableSpec *spec = setup->spec;
    const size_t n_bytes = sizeof(SparseSspModel) + (gsize)setup->n_workers * sizeof(Worker);
    SparseSspModel *sparse = aligned_alloc(64, n_bytes);

    if (sparse == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for what %u workers will tell", spec->name,
                    setup->n_workers);
        return NULL;
    }
    memset(sparse, 0, n_bytes);
    sparse->uses = key_uses_new(key_uses_find_ops(spec_record_name(spec)), setup, error);
    if (sparse->uses == NULL) {
        free(sparse);
        return NULL;
    }
    sparse->staleness = spec->staleness;
    sparse->reach = (uint64_t)spec->staleness + spec->speculation;
    sparse->n_workers = setup->n_workers;
    for (uint32_t i = 0; i < setup->n_workers; i++)
        sparse->workers[i].announced_end = &sparse->workers[i].announced;
    return &sparse->base;
}

static void destroy(RubatoModel *model)
{
    SparseSspModel *sparse = (SparseSspModel *)model;

    for (RubatoRequest *request; (request = request_heap_pop(&sparse->beyond)) != NULL;)
        rubato_model_drop(model, request);
    request_heap_clear(&sparse->beyond);
    for (uint32_t i = 0; i < sparse->n_workers; i++) {
        Worker *worker = &sparse->workers[i];

        for (size_t j = 0; j < worker->n_parked; j++)
            rubato_model_drop(model, worker->parked[j].request);
        g_free(worker->parked);
        for (RubatoRequest *told = worker->announced, *next; told != NULL; told = next) {
            next = told->next;
            rubato_model_discard(model, told);
        }
    }
    key_uses_free(sparse->uses);
    free(sparse);
}

static bool is_within(const SparseSspModel *sparse, uint64_t clock, uint64_t distance)
{
    const uint64_t min = rubato_model_min_clock(&sparse->base);

    return clock <= min || clock - min <= distance;
}

static void park(SparseSspModel *sparse, uint32_t source, const Parked *parked)
{
    Worker *worker = &sparse->workers[source];

    if (worker->n_parked == worker->n_allocated) {
        const uint32_t n = worker->n_allocated == 0 ? 4 : worker->n_allocated * 2;
        Parked *grown = g_try_renew(Parked, worker->parked, n);

        if (grown == NULL) {
            rubato_model_starve(&sparse->base, parked->request);
            return;
        }
        worker->parked = grown;
        worker->n_allocated = n;
    }
    worker->parked[worker->n_parked++] = *parked;
}

static bool has_told(const SparseSspModel *sparse, uint32_t worker, uint64_t iteration)
{
    return sparse->workers[worker].told > iteration ||
           rubato_model_clock(&sparse->base, worker) > iteration;
}

/* A worker other than the reader that has not announced all iterations up to `last`, so it may use
 * any key; n_workers if there is none. */
static uint32_t find_untold(const SparseSspModel *sparse, uint64_t last, uint32_t reader)
{
    uint32_t worker = 0;

    while (worker < sparse->n_workers && (worker == reader || has_told(sparse, worker, last)))
        worker++;
    return worker;
}

/* Short ones are not counted as work. */
static uint64_t long_keys(const RubatoRequest *told)
{
    return told->keys.n > KEY_USES_SHORT_KEYS ? told->keys.n : 0;
}

/* The first one that was not entered is now, or never will be. */
static void pass_first(SparseSspModel *sparse, Worker *worker)
{
    sparse->base.n_to_look_at -= long_keys(worker->to_enter);
    worker->to_enter = worker->to_enter->next;
}

/* Enters the keys of a worker's announcements up to an iteration. False: there is no memory for
 * those of the next one. */
static bool enter(SparseSspModel *sparse, uint32_t source, uint64_t last)
{
    Worker *worker = &sparse->workers[source];

    for (; worker->to_enter != NULL && worker->to_enter->clock <= last; pass_first(sparse, worker))
        if (!key_uses_add(sparse->uses, source, worker->to_enter->clock, &worker->to_enter->keys))
            return false;
    return true;
}

/* Finds what the Get has to wait for: a use of one of its keys in an iteration up to `last`, or an
 * announcement whose keys cannot be entered. False: there is nothing. */
static bool find_use(SparseSspModel *sparse, const RubatoRequest *request, uint64_t last,
                     uint32_t *worker, uint64_t *iteration)
{
    const KeyUse *use;

    for (*worker = 0; *worker < sparse->n_workers; ++*worker)
        if (*worker != request->worker && !enter(sparse, *worker, last)) {
            *iteration = sparse->workers[*worker].to_enter->clock;
            return true;
        }
    use = key_uses_find(sparse->uses, &request->keys, last, request->worker);
    if (use == NULL)
        return false;
    *worker = use->worker;
    *iteration = use->iteration;
    return true;
}

/* Answers a Get or parks it. */
static void decide(SparseSspModel *sparse, RubatoRequest *request)
{
    const uint64_t clock = request->clock;

    if (is_within(sparse, clock, sparse->staleness)) {
        rubato_model_answer(&sparse->base, request);
        return;
    }
    if (!is_within(sparse, clock, sparse->reach)) {
        if (!request_heap_push(&sparse->beyond, request))
            rubato_model_starve(&sparse->base, request);
        return;
    }

    const uint64_t last = clock - sparse->staleness - 1;
    const uint32_t untold = find_untold(sparse, last, request->worker);
    if (untold < sparse->n_workers) {
        park(sparse, untold,
             &(Parked){ .request = request, .until = UNTIL_TOLD, .iteration = last });
        return;
    }

    uint32_t user;
    uint64_t iteration;
    if (find_use(sparse, request, last, &user, &iteration)) {
        park(sparse, user,
             &(Parked){ .request = request, .until = UNTIL_FINISHED, .iteration = iteration });
        return;
    }
    rubato_model_answer(&sparse->base, request);
}

static bool is_resolved(const SparseSspModel *sparse, uint32_t worker, const Parked *parked)
{
    return parked->until == UNTIL_TOLD
               ? has_told(sparse, worker, parked->iteration)
               : rubato_model_clock(&sparse->base, worker) > parked->iteration;
}

/* Examines the Gets whose obstacle with this worker is gone. All are taken out before the first is
 * decided, because it may be filed with the same worker again. */
static void look_again(SparseSspModel *sparse, uint32_t source)
{
    Worker *worker = &sparse->workers[source];
    RubatoRequest *resolved = NULL;
    RubatoRequest **end = &resolved;
    uint32_t n_left = 0;

    for (size_t i = 0; i < worker->n_parked; i++) {
        const Parked parked = worker->parked[i];

        if (is_resolved(sparse, source, &parked)) {
            *end = parked.request;
            end = &parked.request->next;
        } else {
            worker->parked[n_left++] = parked;
        }
    }
    worker->n_parked = n_left;
    *end = NULL;
    for (RubatoRequest *next; resolved != NULL; resolved = next) {
        next = resolved->next;
        decide(sparse, resolved);
    }
}

/* Forgets a worker's announcements of iterations that it has finished. */
static void forget_finished(SparseSspModel *sparse, uint32_t source, uint64_t clock)
{
    Worker *worker = &sparse->workers[source];

    while (worker->announced != NULL && worker->announced->clock < clock) {
        RubatoRequest *finished = worker->announced;

        worker->announced = finished->next;
        if (worker->announced == NULL)
            worker->announced_end = &worker->announced;
        if (finished == worker->to_enter)
            pass_first(sparse, worker);
        else
            key_uses_remove(sparse->uses, source, finished->clock, &finished->keys);
        rubato_model_discard(&sparse->base, finished);
    }
}

static void get(RubatoModel *model, RubatoRequest *request)
{
    decide((SparseSspModel *)model, request);
}

static void add(RubatoModel *model, RubatoRequest *request)
{
    __builtin_prefetch(model->progress); /* the answer tells the min clock */
    rubato_model_apply(model, request);
    rubato_model_finish(model, request);
}

static void advance(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to)
{
    SparseSspModel *sparse = (SparseSspModel *)model;
    const RubatoRequest *first;

    (void)from;
    forget_finished(sparse, source, to);
    look_again(sparse, source);
    while ((first = request_heap_first(&sparse->beyond)) != NULL &&
           is_within(sparse, first->clock, sparse->reach))
        decide(sparse, request_heap_pop(&sparse->beyond));
}

/* Whether an announcement, or a piece of one, is the next one that is due from the worker. A piece
 * has keys, and no more than are still to come. */
static bool is_next(const Worker *worker, const RubatoRequest *request)
{
    const uint64_t n = request->keys.n;

    if (request->clock == RUBATO_CLOCK_RETIRED)
        return worker->n_come == 0;
    if (request->clock != worker->told || request->n_announced > KEY_USES_MAX_KEYS)
        return false;
    if (worker->n_come > 0)
        return request->n_announced == worker->n_all && n > 0 &&
               n <= worker->n_all - worker->n_come;
    return request->n_announced == 0 || (n > 0 && n <= request->n_announced);
}

/* False if there is no memory. */
static bool keep_announcement(SparseSspModel *sparse, Worker *worker, const RubatoRequest *request)
{
    RubatoRequest *told = rubato_model_keep(&sparse->base, request);

    if (told == NULL)
        return false;
    if (worker->to_enter == NULL)
        worker->to_enter = told;
    sparse->base.n_to_look_at += long_keys(told);
    *worker->announced_end = told;
    worker->announced_end = &told->next;
    return true;
}

/* Enters a worker's announcement of its next iteration. An announcement of an iteration that was
 * told before, or that is not the next one, is useless: it is counted and dropped. No Get waits for
 * ever because of it, since the worker's clock passes it. Too many keys have the same effect, and
 * so has a piece that does not fit the earlier ones. */
static void take_in(SparseSspModel *sparse, const RubatoRequest *request)
{
    RubatoModel *model = &sparse->base;
    Worker *worker = &sparse->workers[request->worker];
    const uint64_t clock = rubato_model_clock(model, request->worker);

    if (worker->told < clock) {
        worker->told = clock;
        worker->n_come = 0;
    }
    if (request->clock < clock)
        return;
    if (!is_next(worker, request)) {
        model->n_ignored++;
        return;
    }
    if (request->clock == RUBATO_CLOCK_RETIRED) {
        keep_announcement(sparse, worker, request); /* it is never finished: the last one */
        worker->told = RUBATO_CLOCK_RETIRED;
        return;
    }
    if (request->keys.n > KEY_USES_MAX_KEYS) {
        model->n_ignored++;
        return;
    }
    if (!keep_announcement(sparse, worker, request))
        return;
    worker->n_come += request->keys.n;
    worker->n_all = request->n_announced;
    if (request->n_announced == 0 || worker->n_come == request->n_announced) {
        worker->told = request->clock + 1;
        worker->n_come = 0;
    }
}

static void announce(RubatoModel *model, RubatoRequest *request)
{
    SparseSspModel *sparse = (SparseSspModel *)model;
    const uint32_t source = request->worker;

    take_in(sparse, request);
    rubato_model_finish(model, request);
    look_again(sparse, source);
}

const RubatoModelOps sparse_ssp_model_ops = {
    .name = "sparse_ssp",
    .traits = { .lead = RUBATO_LEAD_STALENESS,
                .per_worker_clocks = true,
                .takes_announcements = true },
    .create = create,
    .destroy = destroy,
    .get = get,
    .add = add,
    .advance = advance,
    .announce = announce,
};
