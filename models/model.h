/* A consistency model as the server sees it. It decides, for one task, when requests reach a shard.
 *
 * Requests and clocks go in; answered requests are taken from the outbox. Every request comes out
 * exactly once. A Get comes out in the outbox when its rows have been read. An Add or an
 * announcement comes out in the outbox during the call that brought it. A Get that is still parked
 * at the end is in the chain that model_free returns.
 *
 * Order: the messages of one node must arrive here in the order in which they were sent. A node
 * tells a clock only after every Add that its workers made before it.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_MODEL_H
#define RUBATO_MODELS_MODEL_H

#include <rubato/model_ops.h>

/* The model of that name; NULL if there is none. And the name of model i; NULL past the last. */
const RubatoModelOps *model_find(const char *name);
const char *model_name(size_t i);

/* The special properties of the model of a spec. The spec has passed spec_check. */
const RubatoModelTraits *model_traits(const RubatoTableSpec *spec);

/* Whether the model of a spec answers a Get at once if its clock is not beyond the min clock, or
 * not beyond the staleness of a model whose lead that is, and applies an Add as it comes unless it
 * applies_by_clock; whatever the keys. Only models of this library are known to do so. */
bool model_answers_in_reach(const RubatoTableSpec *spec);

/* Begins a task on a shard: every clock is 0. setup->spec and the shard outlive the model. n_nodes
 * is the number of sources if sources are nodes. The caller must retire a source without workers by
 * model_clock. NULL with RUBATO_ERROR_MEMORY. (transfer full) */
RubatoModel *model_new(const RubatoModelSetup *setup, RubatoShard *shard, uint32_t n_nodes,
                       GError **error);

/* Ends the task. Returns the chain of parked Gets, which are not answered. Adds that no clock has
 * released are lost. The outbox must be empty. */
RubatoRequest *model_free(RubatoModel *model);

/* The same for a model whose part moves. *kept is the chain of requests that it keeps: Adds,
 * tunings, announcements. A new model on the same part goes on where this one ended, after it has
 * got the clocks, then the kept requests, and then the parked Gets, in the order of their chains.
 * The caller answers kept calls whose callers wait (model_is_parked_call), and frees other kept
 * requests by model_free_kept. */
RubatoRequest *model_take_apart(RubatoModel *model, RubatoRequest **kept);
bool model_is_parked_call(const RubatoRequest *kept);
void model_free_kept(RubatoRequest *kept);

/* How many sources of clocks there are. */
uint32_t model_n_sources(const RubatoModel *model);

/* Whether a request makes sense to this model: a worker of the task, a clock that a live worker can
 * have. Requests of other nodes are checked by this (and shard_keys_ok) first; the calls below do
 * not check again. */
bool model_request_ok(const RubatoModel *model, const RubatoRequest *request);

void model_get(RubatoModel *model, RubatoRequest *request);
void model_add(RubatoModel *model, RubatoRequest *request);

/* An Add, then a Get, as if they came one after the other. The request comes out once, as a Get;
 * its input is no longer used after this call. */
void model_add_get(RubatoModel *model, RubatoRequest *request);

void model_tune(RubatoModel *model, RubatoRequest *request);

/* The call of a handler (request->handler_call), which the model treats as a Get or an Add. */
void model_call(RubatoModel *model, RubatoRequest *request);

/* The keys of iteration request->clock of a worker, or a piece of them (see
 * RubatoRequest.n_announced); its iterations come in order, and the pieces of one iteration in the
 * order of its keys. A clock of RUBATO_CLOCK_RETIRED: no more iterations come, and the worker uses
 * no more keys. */
void model_announce(RubatoModel *model, RubatoRequest *request);

/* The same. The request does not go to the outbox, and the caller has it back. */
void model_take_announcement(RubatoModel *model, RubatoRequest *request);

/* Has what an announcement and a clock change fetched into the cache. It comes from the processor
 * of the last owner, so better all at once than one line after the other. Always inline: see
 * io/row_places.h. */
static inline __attribute__((always_inline)) void model_fetch_to_begin(const RubatoModel *model)
{
    __builtin_prefetch(model->progress, 1);
    __builtin_prefetch(&model->n_held, 1);
}

/* An Add that comes late, when its clock may have passed: all Adds come in the order of clocks and
 * workers. It does not go to the outbox, and the caller has it back. */
void model_take_deferred(RubatoModel *model, RubatoRequest *request);

/* An Add that comes before its clock has passed. The model keeps the request itself and may change
 * its deltas, until model_clock tells it a clock above the Add's. Then it needs the request no
 * more. For models for which model_borrows is true. */
void model_lend_deferred(RubatoModel *model, RubatoRequest *request);

/* Whether the model applies all Adds of the clocks before one as soon as it is told that one: it is
 * of the library, applies Adds by clock, and hears of one source alone. */
bool model_borrows(const RubatoModel *model);

/* A worker's next iteration, in one: announces the request's keys as the iteration of its clock,
 * then the worker has reached that clock, then it gets the rows. For models whose sources are
 * workers. */
void model_iterate(RubatoModel *model, RubatoRequest *request);

/* A source has reached a clock, or (RUBATO_CLOCK_RETIRED) its end. An old or repeated clock, or an
 * unknown source, changes nothing. */
void model_clock(RubatoModel *model, uint32_t source, uint64_t clock);

/* The same of n sources from number `first` on, of a part that has moved: these clocks had passed
 * before, and the shard knows its time. */
void model_set_clocks(RubatoModel *model, uint64_t first, size_t n, const uint64_t *clocks);

/* The n workers of ranks from `first` on are lost with their node, of this number. They retire at
 * the clock that the shard has heard last. What they have added at that clock, or later, is dropped
 * if the model still keeps it for later. Nothing, if they are lost already. */
void model_lose_workers(RubatoModel *model, uint32_t node, uint32_t first, uint32_t n);

/* What model_lose_workers has told: loss i of a model; false if there are no more. */
typedef struct {
    uint32_t first, n; /* ranks */
    uint64_t clock;    /* where they stood */
} ModelLoss;
bool model_find_loss(const RubatoModel *model, uint32_t i, ModelLoss *loss);

/* Sets the chain to which the model adds answered requests from now on, instead of its own. The
 * chain is empty between two calls, so models that are never called at the same time may share it.
 * Both chains are empty now. */
void model_set_outbox(RubatoModel *model, RubatoRequest **outbox);

/* Empties the outbox. Returns the chain of requests given back since the last call, in that order.
 * rubato_model_min_clock is the min clock at which a Get was answered, as long as no other model_
 * call came between. */
RubatoRequest *model_take_answered(RubatoModel *model);

/* The source whose clock is the min clock, for messages to the user. Any of them if there are
 * several; UINT32_MAX if all are retired. */
uint32_t model_slowest(const RubatoModel *model);

/* The number of keys of unanswered Gets and of requests that the model keeps. A clock or an
 * announcement can make it answer, apply or forget no more keys than these. The call of a handler
 * counts as MODEL_HELD_CALL more, because it may take any time; a tuning counts as one key. */
#define MODEL_HELD_CALL (UINT64_C(1) << 32)
uint64_t model_n_held(const RubatoModel *model);

/* Keys of requests that the model has kept, through all of which a Get may have to go first. */
uint64_t model_n_to_look_at(const RubatoModel *model);

/* How many calls were ignored: clocks of unknown sources, announcements out of order. */
uint64_t model_n_ignored(const RubatoModel *model);

#endif
