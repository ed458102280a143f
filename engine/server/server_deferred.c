/* Clocks that come to a part, and the Adds that workers of this process keep until one does
 * (io/net/deferred_adds.h).
 *
 * DESIGN NOTE
 *
 * What a model sees is the same as if each Add had been sent at once: its order among the Adds is
 * by clock, then by worker, then as the worker made them. There are two ways.
 *
 * If the model holds nothing, its clock is told first. Nothing is released, since nothing is held.
 * Then the due Adds come to it in order, each at a clock below the min clock: the model applies
 * them at once, from the memory of their worker. A Get without keys reads nothing, so it takes only
 * the Adds up to those of its own worker: each worker may so have its own applied on its own
 * processor, whose cache has the deltas and the rows. The part's turn tells where the next one has
 * to begin. Whoever comes first with any other request takes all that is due.
 *
 * If the model holds something, or sums up the Adds of a clock, all that is due comes to it before
 * the clock does. It releases them among what it holds, as the clock says. If that one clock makes
 * all of them due, the model borrows them from their workers' memory until it has been told it;
 * else it keeps copies.
 *
 * A worker that has all servers for itself, or takes turns, does not cut its Adds for them. The
 * owner of all parts takes them so (server_joint.c); an owner of one part takes the keys that the
 * part has.
 *
 * A worker may also send an Add, because it wants a ticket or an answer, or call a handler that
 * writes. What it has deferred comes to the model before. From then on, and up to its next clock,
 * it sends all of its Adds, so no later one is taken for an earlier one
 * (tables/client/client_deferred.c).
 *
 * A request between tasks comes behind the clocks that the engine tells before it. So it sees the
 * rows up to the clock that the workers have, as if each clock had been told at once.
 *
 * Before a part moves and before a model ends, its rows catch up with the node's clock, although no
 * message has brought it. Nothing of the task that was sent before such a clock comes later to this
 * model here: the fence of the move was behind it, or the task is over. So the Adds of a clock that
 * has passed are never lost, and those of a worker's unfinished clock are dropped, because nobody
 * takes them. What is deferred belongs to the task and not to a server: a part that moves within
 * the process leaves it where it is.
 *
 * Thread: the server's owner. */
#include "engine/server/server_private.h"

static void take(void *user, RubatoRequest *request)
{
    model_take_deferred(user, request);
}

static void lend(void *user, RubatoRequest *request)
{
    model_lend_deferred(user, request);
}

static void forget(void *user, RubatoRequest *request)
{
    (void)user;
    (void)request;
}

/* All due Adds come to the model, and then the clock that makes them due. */
static void take_before_clock(DeferredAdds *adds, uint32_t part, RubatoModel *model, uint32_t node,
                              uint64_t clock)
{
    const uint64_t end = deferred_adds_turn_of(adds, clock, 0);

    if (node == 0 && model_borrows(model) && !deferred_adds_may_be_whole(adds)) {
        deferred_adds_look(adds, part, clock, lend, model);
        model_clock(model, node, clock);
        deferred_adds_take(adds, part, end, forget, NULL);
    } else {
        deferred_adds_take(adds, part, end, take, model);
        model_clock(model, node, clock);
    }
}

bool server_adds_may_come_later(const RubatoModel *model)
{
    return model_n_held(model) == 0 && shard_spec(model->shard)->aggregate == RUBATO_AGGREGATE_NONE;
}

/* The clock of the node has come, 0: none has. Takes the due Adds up to those of that worker. */
void server_bring_adds(const Binding *binding, uint32_t part, uint32_t node, uint64_t clock,
                       uint32_t last_worker)
{
    DeferredAdds *const adds = binding->adds;
    RubatoModel *const model = binding->parts[part].model;
    const uint64_t min = rubato_model_min_clock(model);
    const uint64_t due = MAX(clock, min);

    if (due == 0)
        return;
    if (due > min && !server_adds_may_come_later(model)) {
        take_before_clock(adds, part, model, node, clock);
        return;
    }
    if (due > min)
        model_clock(model, node, clock);
    deferred_adds_take(adds, part,
                       last_worker == UINT32_MAX
                           ? deferred_adds_turn_of(adds, due, 0)
                           : deferred_adds_turn_of(adds, due - 1, last_worker) + 1,
                       take, model);
}

void server_bring_clock(const Binding *binding, uint32_t part, const Message *message)
{
    const bool reads = message->kind != MESSAGE_GET || message->request.keys.n > 0;

    server_bring_adds(binding, part, message->node, message->node_clock,
                      reads ? UINT32_MAX : message->request.worker);
}

/* Every node has reached the clock. A model that counts the clocks of workers takes none. */
static void take_clock_of_all(RubatoModel *model, uint64_t clock)
{
    const uint32_t n = model_n_sources(model);

    if (model->ops->traits.per_worker_clocks)
        return;
    for (uint32_t source = 0; source < n; source++)
        model_clock(model, source, clock);
}

void server_take_clock(const Binding *binding, uint32_t part, const MessageClock *clock)
{
    if (clock->source == MESSAGE_CLOCK_OF_ALL)
        take_clock_of_all(binding->parts[part].model, clock->clock);
    else if (binding->adds == NULL)
        model_clock(binding->parts[part].model, clock->source, clock->clock);
    else
        server_bring_adds(binding, part, clock->source, clock->clock, UINT32_MAX);
}

void server_take_earlier(const Binding *binding, const Message *message)
{
    const RubatoRequest *const request = &message->request;
    RubatoModel *const model = binding->parts[message->part].model;

    server_bring_adds(binding, message->part, message->node, 0, UINT32_MAX);
    deferred_adds_take_of(binding->adds, message->part, request->worker, request->clock, take,
                          model);
}

void server_catch_up(Server *server, const Binding *binding, uint32_t part)
{
    const uint32_t self = server->office->self;
    RubatoModel *const model = binding->parts[part].model;

    if (binding->adds == NULL || model == NULL)
        return;
    server_bring_adds(binding, part, self, deferred_adds_clock(binding->adds), UINT32_MAX);
}
