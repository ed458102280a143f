/* A consistency model as the server sees it: a shard's gate for one task.
 *
 * Requests and clocks go in; what has been answered is taken from the outbox. Every request that
 * goes in comes out exactly once: a Get in the outbox once its rows are read, an Add and an
 * announcement in the outbox during the call that brought them, and a Get that is still parked at
 * the end in what model_free returns.
 *
 * Order: what one node sends has to arrive here in the order in which it was sent, and a node tells
 * a clock only behind every Add that its workers made before it.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_MODEL_H
#define RUBATO_MODELS_MODEL_H

#include <rubato/model_ops.h>

/* The model of that name, NULL where there is none; and the i-th model's name, NULL past the
 * last. */
const RubatoModelOps *model_find(const char *name);
const char *model_name(size_t i);

/* What is special about the model of a spec that has passed spec_check. */
const RubatoModelTraits *model_traits(const RubatoTableSpec *spec);

/* Begins a task on a shard: every clock is 0. setup->spec and the shard outlive the model. n_nodes
 * is the number of sources where those are nodes. A source without workers has to be retired by
 * model_clock. NULL with RUBATO_ERROR_MEMORY. (transfer full) */
RubatoModel *model_new(const RubatoModelSetup *setup, RubatoShard *shard, uint32_t n_nodes,
                       GError **error);

/* Ends the task. Returns the chain of parked Gets, dropped unanswered; Adds that no clock has
 * released are lost. The outbox must be empty. */
RubatoRequest *model_free(RubatoModel *model);

/* Whether a request makes sense to this model: a worker of the task, a clock that a live worker can
 * have. What came over the wire is asked this (and shard_keys_ok) first; the calls below take it
 * for granted. */
bool model_request_ok(const RubatoModel *model, const RubatoRequest *request);

void model_get(RubatoModel *model, RubatoRequest *request);
void model_add(RubatoModel *model, RubatoRequest *request);
void model_tune(RubatoModel *model, RubatoRequest *request);

/* The keys of iteration request->clock of a worker, or a piece of them (see
 * RubatoRequest.n_announced); its iterations come in order, the pieces of one in the order of its
 * keys. A clock of RUBATO_CLOCK_RETIRED: there are no more, it uses no keys from here on. */
void model_announce(RubatoModel *model, RubatoRequest *request);

/* A source has come to a clock, or (RUBATO_CLOCK_RETIRED) to its end. An old or repeated clock and
 * an unknown source change nothing. */
void model_clock(RubatoModel *model, uint32_t source, uint64_t clock);

/* Where the model puts what it gives back from now on, instead of a place of its own: a chain that
 * is empty between two calls, so that models which are never called at the same time may share it.
 * Both are empty now. */
void model_set_outbox(RubatoModel *model, RubatoRequest **outbox);

/* Empties the outbox: the chain of requests given back since it was last taken, in the order in
 * which they were. The min clock at which a Get was answered is rubato_model_min_clock as long as
 * no other model_ call came between. */
RubatoRequest *model_take_answered(RubatoModel *model);

/* The source whose clock is the min clock, for messages to the user; any of them where several are,
 * UINT32_MAX where all are retired. */
uint32_t model_slowest(const RubatoModel *model);

/* How many keys the Gets have that are not answered yet, and the requests that the model keeps: no
 * clock and no announcement makes it answer, apply or forget more. */
uint64_t model_n_held(const RubatoModel *model);

/* How many calls were ignored: clocks of unknown sources, announcements out of order. */
uint64_t model_n_ignored(const RubatoModel *model);

#endif
