/* What this node does when another one is lost and the run goes on: CLOSE, PROMOTE, OPEN, and then,
 * if replicas are to be made, EXPECT and COPY (docs/replication.md). The scheduler leads all nodes
 * through these steps. The same follows when a process takes the place of a lost node, and twice
 * when parts leave a node, or go to one that has joined: engine_drain.c has what is different
 * then.
 *
 * Why each wait ends. A map that closes waits for senders that are posting, and these wait for
 * room in a window at most. It may come back with an answer that waits for a replica on the lost
 * node. So each node lets such answers go as soon as it hears of the loss, whatever its thread of
 * part steps does: it may wait for such senders since an earlier loss. Functions that run on
 * servers wait for them to handle messages, which they do without a wait. No step waits for a
 * worker. A snapshot that has closed maps opens them again at once, because it fails by the loss:
 * no step of it waits for a lost node, nor, from then on, for workers.
 *
 * Threads: the thread of part steps. engine_recover: the control actor's owner. */
#include "engine/control/place_text.h"
#include "engine/engine_private.h"
#include "engine/join/admit.h"
#include "engine/parts/ready_memory.h"
#include "engine/server/replicas/server_copied.h"
#include "engine/server/replicas/server_copies.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/task/task_run.h"
#include "models/shard/shard.h"

typedef struct {
    Message message; /* first: the thread finds the step by it */
    RubatoEngine *engine;
    Control control;
    uint64_t call; /* of CLOSE and ADMIT: the call that has to end before; 0: none */
} RecoveryStep;

/* All tables, or those with replicas. From CLOSE to OPEN none is made, and none is dropped: the
 * scheduler lets no call begin meanwhile. */
static GPtrArray *list_tables(RubatoEngine *engine, bool all)
{
    GPtrArray *const tables = g_ptr_array_new();

    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->tables->len; i++) {
        Table *const table = g_ptr_array_index(engine->tables, i);

        if (all || table->map->n_replicas > 0)
            g_ptr_array_add(tables, table);
    }
    pthread_mutex_unlock(&engine->lock);
    return tables;
}

/* ---- CLOSE ---- */

typedef struct {
    const GPtrArray *tables;
    const ControlRecover *recover;
    GString *text;
    pthread_mutex_t lock; /* guards text */
} Listing;

static void list_parts(Server *server, void *data)
{
    Listing *const listing = data;
    g_autoptr(GArray) parts = g_array_new(FALSE, FALSE, sizeof(HeldPart));

    server_forget_copies(server); /* they are not whole, and begin again */
    server_end_settling(server, CALL_CANCELLED);
    /* also tables made since, and places of an earlier PROMOTE */
    if (control_cause_is_loss(listing->recover->cause))
        server_leave_node(server, listing->recover->node);
    for (guint i = 0; i < listing->tables->len; i++)
        server_list_parts(server, ((Table *)g_ptr_array_index(listing->tables, i))->id, parts);
    pthread_mutex_lock(&listing->lock);
    for (guint i = 0; i < parts->len; i++) {
        const HeldPart *const held = &g_array_index(parts, HeldPart, i);

        place_text_write_found(
            listing->text, &(PlaceFound){ .table = held->table,
                                          .part = held->part,
                                          .role = held->is_primary ? PLACE_PRIMARY : PLACE_REPLICA,
                                          .server = server->number,
                                          .position = held->position });
    }
    pthread_mutex_unlock(&listing->lock);
}

/* Which parts there are. */
static void list_known(const GPtrArray *tables, GString *text)
{
    for (guint i = 0; i < tables->len; i++) {
        const Table *const table = g_ptr_array_index((GPtrArray *)tables, i);

        for (uint32_t part = 0; part < table->map->n_parts; part++)
            place_text_write_found(
                text, &(PlaceFound){ .table = table->id, .part = part, .role = PLACE_KNOWN });
    }
}

static void leave_node(RubatoEngine *engine, const ControlRecover *recover)
{
    /* It is, if no process took its place. This thread alone sets it once the run has begun. */
    const bool was_lost = engine->office.is_lost[recover->node];

    post_office_lose_node(&engine->office, recover->node);
    if (was_lost)
        return;
    if (recover->cause != CONTROL_CAUSE_LEAVE) /* what that one had asked is done */
        engine_note_lost_node(engine, recover->node);
    services_break(engine->services, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), recover->text);
}

/* The scheduler's process is lost, and another one goes on: a common clock comes no more. */
static void fail_collecting_tasks(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->runs->len; i++) {
        const RubatoTaskRun *const run = g_ptr_array_index(engine->runs, i);
        const char *const table = task_run_collecting_table(run);

        if (table == NULL)
            continue;
        g_autofree char *text =
            g_strdup_printf("the clocks of table %s, which has no replicas, met in the "
                            "scheduler's process, which was lost",
                            table);
        const ControlOutcome outcome = { CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text };

        engine_tell_scheduler(
            engine,
            &(Control){ .kind = CONTROL_FAIL, .fail = { (uint32_t)task_run_epoch(run), outcome } });
    }
    pthread_mutex_unlock(&engine->lock);
}

static void close_step(RubatoEngine *engine, const ControlRecover *recover, uint64_t call,
                       GString *text)
{
    g_autoptr(GPtrArray) tables = NULL;
    g_autoptr(GPtrArray) all = NULL;
    Listing listing = { .recover = recover, .text = text, .lock = PTHREAD_MUTEX_INITIALIZER };

    engine_await_call(engine, call); /* it ends: no node waits for the recovery in it */
    engine_await_cut(engine, CUT_HOLDS_IMAGES);
    tables = list_tables(engine, /* all= */ false);
    for (guint i = 0; i < tables->len; i++) /* after a second loss they are closed already */
        part_map_close(((Table *)g_ptr_array_index(tables, i))->map);
    if (recover->cause == CONTROL_CAUSE_JOIN)
        post_office_regain_node(&engine->office, recover->node);
    else if (control_cause_is_loss(recover->cause))
        leave_node(engine, recover);
    if (control_cause_is_loss(recover->cause) && recover->node == engine->scheduler_node)
        fail_collecting_tasks(engine);
    all = list_tables(engine, /* all= */ true);
    listing.tables = all;
    servers_run(engine->servers, engine->n_servers, list_parts, &listing);
    if (engine->self == engine->scheduler_node)
        list_known(all, text);
}

/* ---- PROMOTE ---- */

typedef struct {
    const ControlRecover *recover;
    uint32_t n_nodes;
    const bool *workerless; /* by node: the workers that it had are lost */
} Promotion;

static void set_places(Server *server, void *data)
{
    const Promotion *const promotion = data;
    const ControlRecover *const recover = promotion->recover;
    const char *lines = recover->lines;
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        const PartPlace place = engine_place_of(&set, recover->map);

        server_set_place(server, &place);
    }
    for (uint32_t node = 0; node < promotion->n_nodes; node++)
        if (promotion->workerless[node])
            server_lose_workers(server, node);
}

/* The node's own view of the clocks follows that of the parts. Which snapshot is due, and which
 * rows are done in it, depends on this view; the Adds that are in it depend on the parts. Both need
 * to agree only in a cut:
 *   - A snapshot whose CUT came before this step fails by the loss. The next one begins when all
 *     nodes have done OPEN. In its CLOSE all nodes that live tell their clocks again, and fence. So
 *     in its CUT each part and each node has the same lowest clock: that of the workers that live.
 *   - Until then this view may be ahead of parts on other nodes, which keep Adds of clocks below
 *     it. Rows that a worker said to be done at such clocks may be forgotten as not certain
 *     (engine/task/node_reader.c), since the lowest clock in a later cut is no lower. */
static void promote_step(RubatoEngine *engine, const ControlRecover *recover)
{
    g_autofree bool *lost = g_new(bool, engine->n_nodes);
    g_autofree bool *workerless = g_new(bool, engine->n_nodes);

    pthread_mutex_lock(&engine->lock);
    engine_list_lost(engine, lost, workerless);
    pthread_mutex_unlock(&engine->lock);
    servers_run(engine->servers, engine->n_servers, set_places,
                &(Promotion){ recover, engine->n_nodes, workerless });
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->runs->len; i++)
        task_run_lose_workers(g_ptr_array_index(engine->runs, i), workerless);
    pthread_mutex_unlock(&engine->lock);
}

/* ---- OPEN ---- */

/* False: it is none of them. */
static bool find_table(const GPtrArray *tables, uint32_t id, guint *at)
{
    for (*at = 0; *at < tables->len; ++*at)
        if (((const Table *)g_ptr_array_index((GPtrArray *)tables, *at))->id == id)
            return true;
    return false;
}

/* Whether there are such a part and such servers. */
static bool can_be(const RubatoEngine *engine, const Table *table, const PlaceSet *set)
{
    bool can_be = set->part < table->map->n_parts;

    for (uint32_t i = 0; i < set->n; i++)
        can_be = can_be && set->servers[i] < engine->office.n_servers;
    return can_be;
}

/* A server from which a part had moved before its node was lost had answered all changes, and
 * passed on the Gets that waited there. The answers may not have come. */
static void send_again_of(RubatoEngine *engine, uint32_t node)
{
    PostOffice *const office = &engine->office;
    g_autoptr(GPtrArray) tables = list_tables(engine, /* all= */ true);
    g_autoptr(GArray) asked = post_office_list_asked(office, node);
    guint at;

    for (guint i = 0; i < asked->len; i++) {
        const AskedPart *const part = &g_array_index(asked, AskedPart, i);

        if (!find_table(tables, part->table, &at))
            continue;
        const PartMap *const map = ((const Table *)g_ptr_array_index(tables, at))->map;
        const uint32_t server = part_map_server(map, part->part);

        if (map->n_replicas > 0)
            post_office_send_again(office, part->table, part->part, server);
        else
            post_office_ask_again(office, node, part->table, part->part, server);
    }
}

/* Workers' requests go to the new primaries, in their order, before anything else does. Counts in
 * *moved the parts that have one, by table and node. */
static void send_again(RubatoEngine *engine, const GPtrArray *tables, const ControlRecover *recover,
                       uint32_t *moved)
{
    const char *lines = recover->lines;
    PlaceSet set;
    guint at;

    while (place_text_read_set(&lines, &set)) {
        const Table *const table =
            find_table(tables, set.table, &at) ? g_ptr_array_index((GPtrArray *)tables, at) : NULL;
        const uint32_t primary = set.servers[0];

        if (table == NULL || !can_be(engine, table, &set))
            continue;
        if (part_map_server(table->map, set.part) == primary)
            continue;
        part_map_set_server(table->map, set.part, primary);
        if (!control_cause_hands_over(recover->cause)) /* whose primaries answer all */
            post_office_send_again(&engine->office, table->id, set.part, primary);
        moved[at * engine->n_nodes + engine->office.servers[primary].node]++;
    }
    if (control_cause_is_loss(recover->cause))
        send_again_of(engine, recover->node);
}

/* What the log says of it: ": node 4 has 2 parts of table rows now". */
static char *describe_moved(const RubatoEngine *engine, const GPtrArray *tables,
                            const uint32_t *moved)
{
    GString *const text = g_string_new(NULL);

    for (guint i = 0; i < tables->len; i++)
        for (uint32_t node = 0; node < engine->n_nodes; node++) {
            const uint32_t n = moved[i * engine->n_nodes + node];

            if (n > 0)
                g_string_append_printf(
                    text, "%s node %u has %u part%s of table %s now", text->len == 0 ? ":" : ",",
                    engine->office.node_ids[node], n, n == 1 ? "" : "s",
                    ((Table *)g_ptr_array_index((GPtrArray *)tables, i))->spec->name);
        }
    return g_string_free(text, FALSE);
}

/* Parts have the replicas that the lines say. */
static void renew_replicas(const RubatoEngine *engine, const GPtrArray *tables, const char *lines)
{
    PlaceSet set;
    guint at;

    while (place_text_read_set(&lines, &set)) {
        const Table *const table =
            find_table(tables, set.table, &at) ? g_ptr_array_index((GPtrArray *)tables, at) : NULL;

        if (table != NULL && can_be(engine, table, &set))
            part_map_replace_replicas(table->map, set.part, set.n - 1, set.servers + 1);
    }
}

/* A process that has joined knows of no table where its parts are, also of those that have no
 * replicas: where parts of new tables go depends on it. Its first OPEN may be that of another
 * node's loss. */
static void learn_places(RubatoEngine *engine, const ControlRecover *recover)
{
    const bool is_joining = recover->cause == CONTROL_CAUSE_JOIN && recover->node == engine->self;
    g_autoptr(GPtrArray) tables = list_tables(engine, /* all= */ true);
    const char *lines = recover->lines;
    PlaceSet set;
    guint at;

    while (place_text_read_set(&lines, &set)) {
        const Table *const table =
            find_table(tables, set.table, &at) ? g_ptr_array_index(tables, at) : NULL;

        /* others, once it has joined: send_again */
        if (table != NULL && (is_joining || table->map->n_replicas == 0) &&
            can_be(engine, table, &set))
            part_map_set_server(table->map, set.part, set.servers[0]);
    }
}

static void open_step(RubatoEngine *engine, const ControlRecover *recover, GString *plan,
                      GError **fault)
{
    g_autoptr(GPtrArray) tables = list_tables(engine, /* all= */ false);
    g_autofree uint32_t *moved = g_new0(uint32_t, (size_t)tables->len * engine->n_nodes + 1);

    if (engine->serving != NULL)
        learn_places(engine, recover);
    send_again(engine, tables, recover, moved);
    engine_pass_on_given(engine);
    renew_replicas(engine, tables, recover->lines);
    g_autofree char *places = describe_moved(engine, tables, moved);
    for (guint i = 0; i < tables->len; i++)
        part_map_renumber(((Table *)g_ptr_array_index(tables, i))->map, recover->map);
    /* seq_cst: a clock that is told with the old number is found below; see client_clock.c */
    atomic_thread_fence(memory_order_seq_cst);
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < tables->len; i++)
        for (guint j = 0; j < engine->runs->len; j++)
            task_run_tell_clocks(g_ptr_array_index(engine->runs, j),
                                 ((Table *)g_ptr_array_index(tables, i))->id);
    for (guint i = 0; i < tables->len; i++)
        part_map_reopen(((Table *)g_ptr_array_index(tables, i))->map);
    pthread_mutex_unlock(&engine->lock);
    if (engine->newcomer != NULL)
        newcomer_note_placed(engine);
    g_message("%s; the run goes on, by part map %u%s", recover->text, recover->map, places);
    engine_tell_launcher(engine);
    if (engine->self == engine->scheduler_node)
        engine_place_copies(engine, recover, plan, fault);
}

/* ---- EXPECT and COPY ---- */

typedef struct {
    PartPlace place;
    bool is_here;
    RubatoShard *shard;
} Expected;

static void look_for_part(Server *server, void *data)
{
    Expected *const expected = data;

    expected->is_here = server_has_part(server, expected->place.table, expected->place.part);
}

static void expect_replica(Server *server, void *data)
{
    const Expected *const expected = data;

    server_expect_replica(server, &expected->place, expected->shard);
}

/* Another node may have been lost: parts wait for this thread. */
static bool has_more_to_do(const void *engine)
{
    return !mailbox_is_empty(&((const RubatoEngine *)engine)->part_steps.mailbox);
}

/* Rows without memory get it now, while nobody waits for this server: inputs that come before the
 * rows do change any of them, and each would wait for the kernel to clear a page of up to 2 MB.
 * Without memory for the shard, the primary hears so when it has sent the image. */
static void make_replica(RubatoEngine *engine, Server *server, const Table *table,
                         const PlaceSet *set, uint32_t map)
{
    Expected expected = { .place = engine_place_of(set, map) };
    RubatoKey first;
    uint64_t n;

    server_run_here(server, look_for_part, &expected);
    if (expected.is_here)
        return;
    MEMORY_HOME_SCOPE(server->home);
    partition_range(&table->partition, set->part, &first, &n);
    expected.shard = shard_new_seeded(table->spec, first, n, table->hash_seed, NULL);
    if (expected.shard == NULL) {
        g_warning("server %u: there is no memory for a replica of part %u of table %s",
                  server->number, set->part, table->spec->name);
        return;
    }
    ready_memory_fill(expected.shard, has_more_to_do, engine);
    server_run_here(server, expect_replica, &expected);
}

/* The replicas of a part that this node is to get. */
static void make_replicas(RubatoEngine *engine, const Table *table, const PlaceSet *set,
                          uint32_t map)
{
    for (uint32_t i = 1; i < set->n; i++)
        for (uint32_t j = 0; j < engine->n_servers; j++)
            if (engine->servers[j].number == set->servers[i])
                make_replica(engine, &engine->servers[j], table, set, map);
}

static void expect_step(RubatoEngine *engine, const ControlRecover *recover)
{
    g_autoptr(GPtrArray) tables = list_tables(engine, /* all= */ false);
    const char *lines = recover->lines;
    PlaceSet set;
    guint at;

    renew_replicas(engine, tables, recover->lines);
    while (place_text_read_set(&lines, &set)) {
        const Table *const table =
            find_table(tables, set.table, &at) ? g_ptr_array_index(tables, at) : NULL;

        if (table != NULL && can_be(engine, table, &set))
            make_replicas(engine, table, &set, recover->map);
    }
}

static void order_copies(Server *server, void *data)
{
    const ControlRecover *const recover = data;
    const char *lines = recover->lines;
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        const PartPlace place = engine_place_of(&set, recover->map);

        server_order_copies(server, &place);
    }
}

/* No call waits until an image has been packed. */
static void copy_step(RubatoEngine *engine, const ControlRecover *recover)
{
    servers_run(engine->servers, engine->n_servers, order_copies, (void *)(uintptr_t)recover);
    servers_post_copies(engine->servers, engine->n_servers);
}

/* ---- the thread of part steps ---- */

static void do_step(RubatoEngine *engine, const ControlRecover *recover, uint64_t call)
{
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GError) fault = NULL;

    switch ((ControlRecoverStep)recover->step) {
    case CONTROL_RECOVER_ADMIT:
        engine_await_call(engine, call);             /* it may have made a table */
        engine_await_cut(engine, CUT_HOLDS_NOTHING); /* the process has no part in a snapshot */
        if (!admit_process(engine, recover, text, &fault))
            g_string_truncate(text, 0);
        break;
    case CONTROL_RECOVER_CLOSE:
        close_step(engine, recover, call, text);
        break;
    case CONTROL_RECOVER_SETTLE:
        break; /* below */
    case CONTROL_RECOVER_PROMOTE:
        promote_step(engine, recover);
        break;
    case CONTROL_RECOVER_OPEN:
        open_step(engine, recover, text, &fault);
        break;
    case CONTROL_RECOVER_EXPECT:
        expect_step(engine, recover);
        break;
    case CONTROL_RECOVER_COPY:
        copy_step(engine, recover);
        break;
    default: /* node_hears_recover passes no other on */
        g_assert_not_reached();
    }
    if (text->len > CONTROL_MAX_FILE) {
        engine_tell_scheduler(engine,
                              &(Control){ .kind = CONTROL_STOP,
                                          .stop = { "there are more parts than nodes can tell one "
                                                    "another after a loss" } });
        return;
    }
    if (recover->step == CONTROL_RECOVER_CLOSE && control_cause_hands_over(recover->cause))
        engine_fence_nodes(engine, recover, text->str); /* which reports later */
    else if (recover->step == CONTROL_RECOVER_SETTLE)
        engine_settle(engine, recover); /* likewise */
    else
        engine_report_step(engine, recover, fault != NULL ? fault->message : "", text->str);
}

static void run_step(Message *message, void *actor)
{
    RecoveryStep *const step = (RecoveryStep *)message;

    (void)actor;
    do_step(step->engine, &step->control.recover, step->call);
    control_clear(&step->control);
    g_free(step);
}

void engine_recover(RubatoEngine *engine, const Control *control)
{
    RecoveryStep *const step = g_new0(RecoveryStep, 1);

    step->message = (Message){ .kind = MESSAGE_INVOKE, .invoke = run_step };
    step->engine = engine;
    control_copy(&step->control, control);
    if (control->recover.step == CONTROL_RECOVER_CLOSE &&
        control_cause_is_loss(control->recover.cause))
        servers_post_leave(engine->servers, engine->n_servers, control->recover.node);
    if (control->recover.step == CONTROL_RECOVER_CLOSE)
        step->call = engine_short_call_under_way(engine);
    else if (control->recover.step < CONTROL_RECOVER_CLOSE)
        step->call = engine_call_under_way(engine);
    actor_post(&engine->part_steps, &step->message);
}
