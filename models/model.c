/* A task's model over a shard: the list of models, the outbox, and the code that all models share.
 *
 * Thread: the shard's present owner. A request is in one place at a time: with the caller, with the
 * model, or in the outbox. */
#include "models/model.h"

#include <assert.h>
#include <rubato/error.h>
#include <string.h>

#include "io/memory_room.h"
#include "io/net/handler_call.h"
#include "models/handlers/call_records.h"
#include "models/handlers/handler.h"
#include "models/keys.h"
#include "models/progress.h"
#include "models/ragged/ragged.h"
#include "models/registry.h"
#include "models/shard/shard.h"
#include "models/spec.h"

/* The built-in models, one line for each. */
#define FOR_EACH_MODEL(DO) \
    DO(asp_model_ops)      \
    DO(bsp_model_ops)      \
    DO(ssp_model_ops)      \
    DO(sparse_ssp_model_ops)

#define DECLARE(ops) extern const RubatoModelOps ops;
#define LIST(ops) &ops,
FOR_EACH_MODEL(DECLARE)
static const RubatoModelOps *const models[] = { FOR_EACH_MODEL(LIST) };

const RubatoModelOps *model_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(models); i++)
        if (strcmp(models[i]->name, name) == 0)
            return models[i];
    return registry_find(REGISTRY_MODELS, name);
}

const char *model_name(size_t i)
{
    return i < G_N_ELEMENTS(models) ? models[i]->name
                                    : registry_name(REGISTRY_MODELS, i - G_N_ELEMENTS(models));
}

const RubatoModelTraits *rubato_model_traits(const char *model)
{
    const RubatoModelOps *ops = model_find(model == NULL ? "asp" : model);

    return ops == NULL ? NULL : &ops->traits;
}

const RubatoModelTraits *model_traits(const RubatoTableSpec *spec)
{
    const RubatoModelTraits *traits = rubato_model_traits(spec_model_name(spec));

    assert(traits != NULL);
    return traits;
}

static bool is_built_in(const RubatoModelOps *ops)
{
    for (size_t i = 0; i < G_N_ELEMENTS(models); i++)
        if (models[i] == ops)
            return true;
    return false;
}

bool model_answers_in_reach(const RubatoTableSpec *spec)
{
    const RubatoModelOps *const ops = model_find(spec_model_name(spec));

    return is_built_in(ops);
}

RubatoModel *model_new(const RubatoModelSetup *setup, RubatoShard *shard, uint32_t n_nodes,
                       GError **error)
{
    const RubatoModelOps *ops = model_find(spec_model_name(setup->spec));

    assert(ops != NULL);
    const uint32_t n_sources = ops->traits.per_worker_clocks ? setup->n_workers : n_nodes;
    RubatoProgress *progress = progress_new(n_sources);
    if (progress == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for the clocks of %u %s", setup->spec->name, n_sources,
                    ops->traits.per_worker_clocks ? "workers" : "nodes");
        return NULL;
    }

    RubatoModel *model = ops->create(setup, error);
    if (model == NULL) {
        progress_free(progress);
        return NULL;
    }
    model->ops = ops;
    model->shard = shard;
    model->progress = progress;
    model->n_workers = setup->n_workers;
    model->told_clock =
        shard != NULL && shard_counts(shard, RUBATO_TIME_CLOCKS) ? 0 : RUBATO_CLOCK_RETIRED;
    model->n_ignored = 0;
    model->make_room = NULL;
    model->lend = NULL;
    model->lends = model->lent = NULL;
    model->n_held = 0;
    model->n_to_look_at = 0;
    model->own_outbox = NULL;
    model->outbox = &model->own_outbox;
    model->dropped_end = NULL;
    model->kept_end = NULL;
    model->lost = NULL;
    return model;
}

RubatoRequest *model_free(RubatoModel *model)
{
    RubatoRequest *dropped = NULL;

    if (model == NULL)
        return NULL;
    assert(*model->outbox == NULL);
    RubatoProgress *progress = model->progress;
    g_clear_pointer(&model->lost, g_array_unref);
    model->dropped_end = &dropped;
    model->ops->destroy(model);
    progress_free(progress);
    return dropped;
}

RubatoRequest *model_take_apart(RubatoModel *model, RubatoRequest **kept)
{
    *kept = NULL;
    model->kept_end = kept;
    return model_free(model);
}

void model_free_kept(RubatoRequest *kept)
{
    g_free(kept);
}

uint32_t model_n_sources(const RubatoModel *model)
{
    return progress_n_sources(model->progress);
}

bool model_request_ok(const RubatoModel *model, const RubatoRequest *request)
{
    return request->worker < model->n_workers;
}

/* A Get that is answered at once is not counted: its model may have been used on another processor,
 * and a count would fetch the model's cache line to write it. The request has not left the outbox
 * yet. */
void model_get(RubatoModel *model, RubatoRequest *request)
{
    assert(request->worker < model->n_workers);
    request->kind = RUBATO_REQUEST_GET;
    request->is_out = request->is_held = false;
    model->ops->get(model, request);
    if (request->is_out)
        return;
    request->is_held = true;
    model->n_held += request->keys.n;
}

void model_add(RubatoModel *model, RubatoRequest *request)
{
    assert(request->worker < model->n_workers);
    request->kind = RUBATO_REQUEST_ADD;
    request->is_lent = false;
    model->ops->add(model, request);
}

/* The model has finished an Add, or an announcement, of the library's own: takes it out of the
 * outbox. Requests that it has released may lie behind it. */
static void take_back(RubatoModel *model, const RubatoRequest *request)
{
    RubatoRequest **at = model->outbox;

    while (*at != request) {
        assert(*at != NULL); /* a model finishes it in the call that brought it */
        at = &(*at)->next;
    }
    *at = request->next;
}

void model_take_deferred(RubatoModel *model, RubatoRequest *request)
{
    model_add(model, request);
    take_back(model, request);
}

void model_lend_deferred(RubatoModel *model, RubatoRequest *request)
{
    assert(request->worker < model->n_workers && request->keys.at == NULL);
    request->kind = RUBATO_REQUEST_ADD;
    request->is_lent = true;
    model->ops->add(model, request);
    take_back(model, request);
}

bool model_borrows(const RubatoModel *model)
{
    return progress_n_sources(model->progress) == 1 && model->ops->traits.applies_by_clock &&
           is_built_in(model->ops);
}

/* The model sees two requests: the Add goes back to this function, so only the Get is ever parked,
 * dropped, or sent on with a part that moves. */
void model_add_get(RubatoModel *model, RubatoRequest *request)
{
    RubatoRequest adding = *request;

    adding.output = NULL;
    model_add(model, &adding);
    take_back(model, &adding);
    request->input = NULL;
    model_get(model, request);
}

/* What a request that the model holds counts. */
static uint64_t held_keys(const RubatoRequest *request)
{
    return request->keys.n + (request->kind >= RUBATO_REQUEST_READ ? MODEL_HELD_CALL : 0) +
           (request->kind == RUBATO_REQUEST_TUNE ? 1 : 0);
}

/* The model finishes each call in the op that brings it. One that it keeps is not over then. */
static void call_to_write(RubatoModel *model, RubatoRequest *request)
{
    HandlerCall *const call = request->handler_call;

    request->kind = RUBATO_REQUEST_WRITE;
    call->is_parked = false;
    call->is_coming = true;
    model->ops->add(model, request);
    call->is_coming = false;
    if (call->is_parked)
        take_back(model, request);
}

void model_call(RubatoModel *model, RubatoRequest *request)
{
    assert(request->worker < model->n_workers);
    if (request->handler_call->ops->access == RUBATO_ACCESS_WRITES) {
        call_to_write(model, request);
        return;
    }
    request->kind = RUBATO_REQUEST_READ;
    request->is_out = request->is_held = false;
    model->ops->get(model, request);
    if (request->is_out)
        return;
    request->is_held = true;
    model->n_held += held_keys(request);
}

void model_tune(RubatoModel *model, RubatoRequest *request)
{
    assert(request->worker < model->n_workers);
    request->kind = RUBATO_REQUEST_TUNE;
    model->ops->add(model, request);
}

void model_announce(RubatoModel *model, RubatoRequest *request)
{
    assert(request->worker < model->n_workers);
    request->kind = RUBATO_REQUEST_ANNOUNCE;
    if (model->ops->announce != NULL)
        model->ops->announce(model, request);
    else
        rubato_model_finish(model, request);
}

void model_take_announcement(RubatoModel *model, RubatoRequest *request)
{
    model_announce(model, request);
    take_back(model, request);
}

/* The end of the last worker is no clock. */
static void tell_time(RubatoModel *model)
{
    const uint64_t min_clock = progress_min(model->progress);

    if (min_clock != RUBATO_CLOCK_RETIRED)
        shard_pass_time(model->shard, min_clock - model->told_clock);
    model->told_clock = min_clock;
}

void model_clock(RubatoModel *model, uint32_t source, uint64_t clock)
{
    uint64_t from;

    if (source >= progress_n_sources(model->progress)) {
        model->n_ignored++;
        return;
    }
    if (!progress_advance(model->progress, source, clock, &from))
        return;
    if (G_UNLIKELY(progress_min(model->progress) > model->told_clock))
        tell_time(model);
    if (model->ops->advance != NULL)
        model->ops->advance(model, source, from, clock);
}

void model_set_clocks(RubatoModel *model, uint64_t first, size_t n, const uint64_t *clocks)
{
    const bool tells = model->told_clock != RUBATO_CLOCK_RETIRED;

    model->told_clock = RUBATO_CLOCK_RETIRED;
    for (size_t i = 0; i < n; i++)
        model_clock(model, (uint32_t)(first + i), clocks[i]);
    if (tells)
        model->told_clock = progress_min(model->progress);
}

/* Others' Gets, which the announcement or the clock may release, come into the outbox before this
 * one's. */
void model_iterate(RubatoModel *model, RubatoRequest *request)
{
    RubatoRequest announcing = *request;

    announcing.output = NULL;
    announcing.n_announced = 0; /* the whole */
    model_take_announcement(model, &announcing);
    model_clock(model, request->worker, request->clock);
    model_get(model, request);
}

/* ---- lost workers ---- */

static bool is_among(const ModelLoss *lost, uint32_t worker)
{
    return worker - lost->first < lost->n;
}

static bool knows_lost(const RubatoModel *model, uint32_t worker)
{
    bool knows = false;

    for (guint i = 0; model->lost != NULL && i < model->lost->len; i++)
        knows = knows || is_among(&g_array_index(model->lost, ModelLoss, i), worker);
    return knows;
}

static void lose_source(RubatoModel *model, uint32_t source, uint32_t first, uint32_t n)
{
    const ModelLoss lost = { first, n, progress_clock(model->progress, source) };

    if (model->lost == NULL)
        model->lost = g_array_new(FALSE, FALSE, sizeof(ModelLoss));
    g_array_append_val(model->lost, lost);
    model_clock(model, source, RUBATO_CLOCK_RETIRED);
}

void model_lose_workers(RubatoModel *model, uint32_t node, uint32_t first, uint32_t n)
{
    const bool by_worker = model->ops->traits.per_worker_clocks;

    if (n == 0 || n > model->n_workers || first > model->n_workers - n ||
        (!by_worker && node >= progress_n_sources(model->progress))) {
        model->n_ignored++;
        return;
    }
    if (knows_lost(model, first))
        return;
    for (uint32_t rank = first; by_worker && rank < first + n; rank++)
        lose_source(model, rank, rank, 1);
    if (!by_worker)
        lose_source(model, node, first, n);
}

bool model_find_loss(const RubatoModel *model, uint32_t i, ModelLoss *loss)
{
    if (model->lost == NULL || i >= model->lost->len)
        return false;
    *loss = g_array_index(model->lost, ModelLoss, i);
    return true;
}

bool rubato_model_is_of_lost(const RubatoModel *model, const RubatoRequest *kept)
{
    for (guint i = 0; model->lost != NULL && i < model->lost->len; i++) {
        const ModelLoss *const lost = &g_array_index(model->lost, ModelLoss, i);

        if (is_among(lost, kept->worker) && kept->clock >= lost->clock)
            return true;
    }
    return false;
}

void model_set_outbox(RubatoModel *model, RubatoRequest **outbox)
{
    assert(*model->outbox == NULL && *outbox == NULL);
    model->outbox = outbox;
}

RubatoRequest *model_take_answered(RubatoModel *model)
{
    RubatoRequest *request = *model->outbox, *next, *oldest_first = NULL;

    *model->outbox = NULL;
    if (request == NULL || request->next == NULL) /* the usual case */
        return request;
    for (; request != NULL; request = next) {
        next = request->next;
        request->next = oldest_first;
        oldest_first = request;
    }
    return oldest_first;
}

uint32_t model_slowest(const RubatoModel *model)
{
    return progress_slowest(model->progress);
}

uint64_t model_n_ignored(const RubatoModel *model)
{
    return model->n_ignored;
}

uint64_t model_n_held(const RubatoModel *model)
{
    return model->n_held;
}

uint64_t model_n_to_look_at(const RubatoModel *model)
{
    return model->n_to_look_at;
}

uint64_t rubato_model_min_clock(const RubatoModel *model)
{
    return progress_min(model->progress);
}

uint64_t rubato_model_clock(const RubatoModel *model, uint32_t source)
{
    return progress_clock(model->progress, source);
}

static void put_out(RubatoModel *model, RubatoRequest *request)
{
    request->is_out = true;
    request->next = *model->outbox;
    *model->outbox = request;
}

static bool make_room(RubatoModel *model, RubatoRequest *request)
{
    return model->make_room != NULL &&
           model->make_room(request, request->keys.n * shard_row_bytes(model->shard));
}

/* Whether the answer takes the rows where they lie. */
static bool lend_rows(RubatoModel *model, RubatoRequest *request)
{
    const void *const rows = shard_find_run(model->shard, &request->keys);
    const size_t n_bytes = request->keys.n * shard_row_bytes(model->shard);

    if (rows == NULL || !model->lend(request, rows, n_bytes))
        return false;
    model->lent = request;
    return true;
}

static void answer_lender(RubatoModel *model, RubatoRequest *request)
{
    if (lend_rows(model, request))
        return;
    if (make_room(model, request))
        shard_get(model->shard, &request->keys, request->output);
    else
        shard_starve(model->shard);
}

/* Copies the rows that an answer was to take where they lie, because they change before. */
static void end_lending(RubatoModel *model)
{
    RubatoRequest *const request = model->lent;

    model->lent = NULL;
    shard_get(model->shard, &request->keys, request->output);
    (void)model->lend(request, /* rows= */ NULL, 0);
}

void rubato_model_answer(RubatoModel *model, RubatoRequest *request)
{
    if (G_UNLIKELY(request->kind == RUBATO_REQUEST_READ))
        handler_run(request->handler_call, model->shard, &request->keys);
    else if (request->output != NULL || request->keys.n == 0 ||
             (request != model->lends && make_room(model, request)))
        shard_get(model->shard, &request->keys, request->output);
    else if (request == model->lends)
        answer_lender(model, request);
    else
        shard_starve(model->shard);
    if (request->is_held)
        model->n_held -= held_keys(request);
    put_out(model, request);
}

void rubato_model_apply(RubatoModel *model, const RubatoRequest *request)
{
    if (G_UNLIKELY(model->lent != NULL))
        end_lending(model);
    if (request->kind == RUBATO_REQUEST_TUNE)
        shard_tune(model->shard, &request->tuning);
    else if (request->kind == RUBATO_REQUEST_WRITE)
        handler_run(request->handler_call, model->shard, &request->keys);
    else
        shard_add_by(model->shard, request->worker, &request->keys, request->input);
}

void rubato_model_finish(RubatoModel *model, RubatoRequest *request)
{
    put_out(model, request);
}

void rubato_model_drop(RubatoModel *model, RubatoRequest *request)
{
    assert(model->dropped_end != NULL);
    request->next = NULL;
    *model->dropped_end = request;
    model->dropped_end = &request->next;
}

void rubato_model_starve(RubatoModel *model, RubatoRequest *request)
{
    shard_starve(model->shard);
    if (request != NULL)
        put_out(model, request);
}

/* What is asked of a table of ragged rows is waited for in its own clock. So it is answered when it
 * is kept, and the model has a copy. */
static bool is_answered_soon(const RubatoRequest *request)
{
    return ragged_is_request(request->handler_call->ops);
}

/* Whether a call that the model keeps is answered when it has run. Its caller knows that by the
 * same trait, and does not wait for it in the clock that has to end before
 * (client_kept_calls.c). */
static bool is_answered_late(const RubatoModel *model, const RubatoRequest *request)
{
    return request->kind == RUBATO_REQUEST_WRITE && model->ops->traits.applies_by_clock &&
           !is_answered_soon(request);
}

/* Whether a part with replicas remembers the call. Then each holder of the part keeps a copy, and
 * whoever has the record answers the call, unless it is answered now. */
static bool has_record(const RubatoRequest *request)
{
    return request->kind == RUBATO_REQUEST_WRITE && request->handler_call->record != NULL;
}

static bool is_lent(const RubatoRequest *request)
{
    return request->kind == RUBATO_REQUEST_ADD && request->is_lent;
}

/* A call of a handler lies behind the kept request's keys, and its arguments behind it. */
static size_t call_bytes(const RubatoRequest *request)
{
    return request->kind == RUBATO_REQUEST_WRITE
               ? sizeof(HandlerCall) + request->handler_call->n_bytes
               : 0;
}

static void copy_call(RubatoRequest *kept, void *to)
{
    const HandlerCall *const from = kept->handler_call;
    HandlerCall *const call = to;

    *call = *from;
    call->is_kept = true;
    call->is_parked = false;
    call->answer = (HandlerAnswer){ 0 };
    if (is_answered_soon(kept))
        call->record = NULL; /* it is the answered one's */
    call->arguments = call + 1;
    if (call->n_bytes > 0)
        memcpy(call + 1, from->arguments, call->n_bytes);
    kept->handler_call = call;
}

/* One block holds the request, its keys and its input. This order aligns each of them. */
RubatoRequest *rubato_model_keep(RubatoModel *model, const RubatoRequest *request)
{
    if (has_record(request))
        request->handler_call->is_parked = !is_answered_soon(request);
    else if (is_answered_late(model, request) || is_lent(request)) {
        if (!is_lent(request))
            request->handler_call->is_parked = true;
        model->n_held += held_keys(request);
        return (RubatoRequest *)(uintptr_t)request;
    }
    const RubatoKeys *from = &request->keys;
    const size_t row_bytes = request->input == NULL ? 0 : shard_row_bytes(model->shard);
    const size_t key_bytes = from->keys == NULL ? 0 : from->n * sizeof(RubatoKey);
    RubatoRequest *kept =
        memory_try_malloc(sizeof(*kept) + key_bytes + from->n * row_bytes + call_bytes(request));

    if (kept == NULL) {
        shard_starve(model->shard);
        return NULL;
    }
    RubatoKey *keys = (RubatoKey *)(kept + 1);
    unsigned char *input = (unsigned char *)keys + key_bytes;

    model->n_held += held_keys(request);
    *kept = *request;
    kept->next = NULL;
    kept->keys.at = NULL;
    if (from->keys != NULL) {
        kept->keys.keys = keys;
        if (from->at == NULL)
            memcpy(keys, from->keys, key_bytes);
        else
            for (size_t i = 0; i < from->n; i++)
                keys[i] = keys_get(from, i);
    }
    if (request->input != NULL) {
        const unsigned char *rows = request->input;

        kept->input = input;
        for (size_t i = 0; i < from->n; i++)
            memcpy(input + i * row_bytes, rows + keys_row(from, i) * row_bytes, row_bytes);
    }
    if (kept->kind == RUBATO_REQUEST_WRITE)
        copy_call(kept, input);
    return kept;
}

bool model_is_parked_call(const RubatoRequest *kept)
{
    return kept->kind == RUBATO_REQUEST_WRITE && kept->handler_call->is_parked;
}

/* A call that has run, or that the model gives up. */
static void end_parked_call(RubatoModel *model, RubatoRequest *request)
{
    request->handler_call->is_parked = false;
    if (model->dropped_end != NULL)
        rubato_model_drop(model, request);
    else if (!request->handler_call->is_coming)
        put_out(model, request);
}

/* A copy of a call that a part remembers. Those who wait are answered if it has run; otherwise the
 * model ends, or is taken apart, and they come to who does that. */
static void end_remembered(RubatoModel *model, const RubatoRequest *kept)
{
    HandlerCall *const call = kept->handler_call;
    RubatoRequest *waiting = call_record_take_waiting(call->record), *next;
    const char *const failure = call->answer.failure;

    for (; waiting != NULL; waiting = next) {
        next = waiting->next;
        waiting->handler_call->is_parked = false;
        if (model->dropped_end != NULL) {
            rubato_model_drop(model, waiting);
            continue;
        }
        waiting->handler_call->record = NULL;
        waiting->handler_call->answer.failure = g_strdup(failure);
        put_out(model, waiting);
    }
    if (model->dropped_end == NULL)
        call_record_end(call->record, failure);
    handler_answer_clear(&call->answer);
}

void rubato_model_discard(RubatoModel *model, RubatoRequest *kept)
{
    model->n_held -= held_keys(kept);
    if (G_UNLIKELY(has_record(kept)))
        end_remembered(model, kept);
    if (is_lent(kept)) {
        assert(model->kept_end == NULL); /* it was lent for the time of one clock */
        return;
    }
    if (G_LIKELY(model->kept_end == NULL)) {
        if (G_UNLIKELY(model_is_parked_call(kept)))
            end_parked_call(model, kept);
        else
            g_free(kept);
        return;
    }
    kept->next = NULL;
    *model->kept_end = kept;
    model->kept_end = &kept->next;
}
