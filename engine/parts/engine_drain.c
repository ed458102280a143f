/* Parts that leave a node which lives, all at once: what this node does in the steps that the
 * scheduler leads it through, and the call that asks for them. The design note is in
 * server/server_handover.c; the steps are those of engine_recovery.c.
 *
 * Why each wait ends. CLOSE and SETTLE wait for servers of the node that is drained, and for
 * replicas; these handle messages without a wait. If one of the nodes is lost, its fences end and
 * its replicas do not count any more, as soon as nodes hear of the loss. No thread waits for them:
 * whoever ends the last part reports the step.
 *
 * Threads: that of part steps; of the call any. engine_note_draining, engine_hear_drained: the
 * control actor's owner. */
#include "engine/engine_private.h"
#include "engine/launch/launcher_news.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_handover.h"
#include "io/net/stall_clock.h"
#include "models/shard/shard.h"

#include <signal.h>
#include <string.h>

void engine_report_step(RubatoEngine *engine, const ControlRecover *recover, const char *text,
                        const char *lines)
{
    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_RECOVERED,
                                              .recover = { .map = recover->map,
                                                           .step = recover->step,
                                                           .node = recover->node,
                                                           .text = text,
                                                           .lines = lines } });
}

/* ---- a step that is reported later ---- */

typedef struct {
    Call call; /* first: its end finds it */
    RubatoEngine *engine;
    Control control; /* a RECOVER with what to report */
    Message *fences;
} LateStep;

/* If it was cancelled, the run has ended, or another step has begun. */
static void report(Call *call)
{
    LateStep *const step = (LateStep *)call;
    const ControlRecover *const recover = &step->control.recover;

    /* relaxed: the call has ended, which orders it */
    if (atomic_load_explicit(&call->status, memory_order_relaxed) == CALL_OK)
        engine_report_step(step->engine, recover, "", recover->lines);
    control_clear(&step->control);
    g_free(step->fences);
    g_free(step);
}

static LateStep *late_step_new(RubatoEngine *engine, const ControlRecover *recover,
                               const char *lines)
{
    LateStep *const step = g_new0(LateStep, 1);
    Control told = { .kind = CONTROL_RECOVER, .recover = *recover };

    told.recover.lines = lines;
    control_copy(&step->control, &told);
    step->engine = engine;
    call_begin(&step->call, report);
    return step;
}

/* ---- CLOSE ---- */

/* Whether parts may leave the server: they leave one node, or any. */
static bool may_give(const RubatoEngine *engine, const ControlRecover *recover, uint32_t server)
{
    return recover->cause == CONTROL_CAUSE_BALANCE ||
           engine->office.servers[server].node == recover->node;
}

void engine_fence_nodes(RubatoEngine *engine, const ControlRecover *recover, const char *lines)
{
    PostOffice *const office = &engine->office;
    LateStep *const step = late_step_new(engine, recover, lines);
    uint32_t n = 0;

    step->fences = g_new(Message, office->n_servers);
    for (uint32_t server = 0; server < office->n_servers; server++) {
        if (!may_give(engine, recover, server))
            continue;
        step->fences[n] = (Message){ .kind = MESSAGE_FENCE,
                                     .table = MESSAGE_NO_TABLE,
                                     .server = server,
                                     .node = office->self,
                                     .call = &step->call,
                                     .end = message_end_call };
        call_add_parts(&step->call, 1);
        post_office_ask(office, &step->fences[n++]);
    }
    post_office_flush(office);
    post_office_end_fences(office); /* a node that is lost does not answer */
    /* seq_cst: engine_break sets it before it sweeps; one of the two sees the other */
    if (atomic_load_explicit(&engine->broken, memory_order_seq_cst))
        post_office_cancel(office, POST_OFFICE_ALL_EPOCHS);
    call_sent(&step->call);
}

/* ---- SETTLE ---- */

typedef struct {
    const ControlRecover *recover;
    Call *call;
} Settling;

static void settle(Server *server, void *data)
{
    const Settling *const settling = data;
    const char *lines = settling->recover->lines;
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        const PartPlace place = engine_place_of(&set, settling->recover->map);

        server_settle_part(server, &place);
    }
    server_await_settled(server, settling->call);
}

void engine_settle(RubatoEngine *engine, const ControlRecover *recover)
{
    LateStep *const step = late_step_new(engine, recover, "");

    servers_run(engine->servers, engine->n_servers, settle, &(Settling){ recover, &step->call });
    call_sent(&step->call);
}

/* ---- OPEN ---- */

/* The lock is not held: no table is dropped meanwhile. */
static const Table *find_table(RubatoEngine *engine, uint32_t id)
{
    const Table *found = NULL;

    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->tables->len && found == NULL; i++) {
        const Table *const table = g_ptr_array_index(engine->tables, i);

        if (table->id == id)
            found = table;
    }
    pthread_mutex_unlock(&engine->lock);
    return found;
}

static void pass_on(RubatoEngine *engine, MovingPart *given)
{
    const Table *const table = find_table(engine, given->table);

    if (table == NULL) {
        server_drop_given_part(given);
        return;
    }
    moving_part_send_parked(given, &(PartWay){ .office = &engine->office,
                                               .server = part_map_server(table->map, given->part),
                                               .cancelled = &engine->broken,
                                               .table_name = table->spec->name,
                                               .stall_ms = engine->stall_ms,
                                               .goes_at_once = true });
    moving_part_free(given);
}

static void take_given(Server *server, void *data)
{
    GPtrArray **const given = data;

    *given = server_take_given(server);
}

void engine_pass_on_given(RubatoEngine *engine)
{
    for (uint32_t server = 0; server < engine->n_servers; server++) {
        GPtrArray *given = NULL;

        servers_run(&engine->servers[server], 1, take_given, &given);
        for (guint i = 0; given != NULL && i < given->len; i++)
            pass_on(engine, g_ptr_array_index(given, i));
        if (given != NULL)
            g_ptr_array_unref(given);
    }
}

/* ---- what the scheduler says ---- */

void engine_note_draining(RubatoEngine *engine, const char *lines)
{
    pthread_mutex_lock(&engine->lock);
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        engine->drains[i] = false;
    for (char *end; *lines != '\0'; lines = end) {
        const uint64_t node = g_ascii_strtoull(lines, &end, 10);

        if (end == lines || *end != '\n' || node >= engine->n_nodes)
            break; /* the scheduler writes none such */
        engine->drains[node] = true;
        end++;
    }
    pthread_mutex_unlock(&engine->lock);
}

typedef struct {
    uint64_t number;
    bool has_ended;
    uint32_t code;
    char *text;
} DrainAsk;

/* This node has been drained, and leaves the run before the others do. LEAVE goes first: what
 * breaks now may end the process. */
static void leave(RubatoEngine *engine, const char *text)
{
    pthread_mutex_lock(&engine->lock);
    const bool has_left = engine->left;
    engine->left = true;
    pthread_mutex_unlock(&engine->lock);
    if (has_left)
        return;
    g_message("%s", text);
    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_LEAVE });
    launcher_news_tell_served(engine->id);
    engine_break(engine, CONTROL_CODE(RUBATO_ERROR_SERVED), text);
}

/* Whether that is how the drain has ended which a signal has begun. The lock is held. */
static bool is_at_signal(const RubatoEngine *engine, const ControlDrain *drained)
{
    return engine->drained_at.number != 0 && engine->drained_at.number == drained->number;
}

void engine_hear_drained(RubatoEngine *engine, const ControlDrain *drained)
{
    if (drained->outcome.code == CONTROL_CODE(RUBATO_ERROR_SERVED)) {
        leave(engine, drained->outcome.text);
        return;
    }
    pthread_mutex_lock(&engine->lock);
    const bool is_own = is_at_signal(engine, drained);
    const int signal_number = engine->drained_at.signal_number;
    for (guint i = 0; i < engine->drain_asks->len; i++) {
        DrainAsk *const ask = g_ptr_array_index(engine->drain_asks, i);

        if (ask->number != drained->number || ask->has_ended)
            continue;
        ask->has_ended = true;
        ask->code = drained->outcome.code;
        ask->text = g_strdup(drained->outcome.text);
    }
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    if (!is_own || drained->outcome.code == CONTROL_OK)
        return;
    g_message("node %u got signal %d and keeps its parts: %s", engine->id, signal_number,
              drained->outcome.text);
    (void)engine->drained_at.interrupted(engine, signal_number);
}

/* ---- SIGTERM ---- */

bool engine_drain_at_signal(RubatoEngine *engine, int signal_number,
                            bool (*interrupted)(RubatoEngine *engine, int signal_number))
{
    bool may;
    uint64_t number = 0;

    pthread_mutex_lock(&engine->lock);
    may = signal_number == SIGTERM && engine->cluster != NULL && engine->rendezvous.welcome &&
          engine->self != engine->scheduler_node && engine->n_servers > 0 &&
          (engine->workers_of[engine->self] == 0 ||
           (engine->serving != NULL && engine->newcomer == NULL)) &&
          !engine->left && engine->broken_text == NULL &&
          /* relaxed: without replicas the scheduler refuses */
          atomic_load_explicit(&engine->office.goes_on, memory_order_relaxed);
    if (may) {
        number = ++engine->n_drains;
        engine->drained_at.number = number;
        engine->drained_at.signal_number = signal_number;
        engine->drained_at.interrupted = interrupted;
    }
    pthread_mutex_unlock(&engine->lock);
    if (!may)
        return false;
    g_message("node %u got signal %d (%s): its parts go to other nodes, and then it ends; another "
              "signal ends it at once",
              engine->id, signal_number, strsignal(signal_number));
    engine_tell_scheduler(
        engine, &(Control){ .kind = CONTROL_DRAIN,
                            .drain = { .number = number, .node_id = engine->id, .ends = true } });
    return true;
}

/* ---- the call ---- */

/* The lock is held. */
static bool wait_drained(RubatoEngine *engine, const DrainAsk *ask, uint32_t node, GError **error)
{
    StallClock clock;

    stall_clock_start(&clock, engine->stall_ms);
    while (!ask->has_ended && !engine->scheduler_lost && engine->broken_text == NULL)
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u waits until node %u is drained (for %.1f s so far)", engine->id,
                      node, stall_clock_s(&clock));
    if (ask->has_ended)
        return control_check(ask->code, ask->text, error);
    if (engine_check(engine, error))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED,
                    "node %u was not drained: the run has ended", node);
    return false;
}

bool rubato_engine_drain_node(RubatoEngine *engine, unsigned node, GError **error)
{
    DrainAsk ask = { 0 };
    bool ok;

    g_return_val_if_fail(engine != NULL, false);
    if (!engine_check_caller_or_worker(engine, "rubato_engine_drain_node", error))
        return false;
    LOG_SINK_SCOPE(&engine->log);

    pthread_mutex_lock(&engine->lock);
    ask.number = ++engine->n_drains;
    g_ptr_array_add(engine->drain_asks, &ask);
    pthread_mutex_unlock(&engine->lock);
    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_DRAIN,
                                              .drain = { .number = ask.number, .node_id = node } });
    pthread_mutex_lock(&engine->lock);
    ok = wait_drained(engine, &ask, node, error);
    g_ptr_array_remove_fast(engine->drain_asks, &ask);
    pthread_mutex_unlock(&engine->lock);
    g_free(ask.text);
    return ok;
}
