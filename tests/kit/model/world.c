/* A run of a model test: what workers do, what shards take.
 *
 * Thread: that of the test case. */
#include "tests/kit/model/world_private.h"

#include <string.h>

/* ---- telling ---- */

void world_fail(World *world, const char *format, ...)
{
    va_list arguments;

    if (world->failure != NULL)
        return;
    va_start(arguments, format);
    world->failure = g_strdup_vprintf(format, arguments);
    va_end(arguments);
}

void world_tell(World *world, const char *format, ...)
{
    va_list arguments;

    if (world->story == NULL)
        return;
    va_start(arguments, format);
    g_string_append_vprintf(world->story, format, arguments);
    va_end(arguments);
}

static void tell_keys(World *world, const RubatoKey *keys, size_t n)
{
    world_tell(world, n == 0 ? " no key" : n == 1 ? " key" : " keys");
    for (size_t i = 0; i < n; i++)
        world_tell(world, " %u", (unsigned)(keys[i] - FIRST_KEY));
}

/* (transfer full) */
static char *clock_text(uint64_t clock)
{
    return clock == RUBATO_CLOCK_RETIRED ? g_strdup("retired")
                                         : g_strdup_printf("%" G_GUINT64_FORMAT, clock);
}

/* ---- what is so ---- */

uint64_t world_true_min(const World *world)
{
    uint64_t min = RUBATO_CLOCK_RETIRED;

    for (uint32_t i = 0; i < world->scenario.n_workers; i++)
        min = MIN(min, world->workers[i].clock);
    return min;
}

static uint64_t clock_of_source(const World *world, uint32_t source)
{
    uint64_t min = RUBATO_CLOCK_RETIRED;

    if (world->has_worker_clocks)
        return world->workers[source].clock;
    for (uint32_t i = 0; i < world->scenario.n_workers; i++)
        if (world->scenario.node_of[i] == source)
            min = MIN(min, world->workers[i].clock);
    return min;
}

static uint32_t node_of_source(const World *world, uint32_t source)
{
    return world->has_worker_clocks ? world->scenario.node_of[source] : source;
}

static uint32_t shard_of(const World *world, RubatoKey key)
{
    uint32_t i = 0;

    while (key - world->shards[i].first_key >= world->shards[i].n_keys)
        i++;
    return i;
}

bool world_can_step(const World *world, uint32_t worker)
{
    return world->workers[worker].clock != RUBATO_CLOCK_RETIRED &&
           world->workers[worker].waits_for == NULL;
}

bool world_has_mail(const World *world, uint32_t node, uint32_t shard)
{
    return node < world->scenario.n_nodes && shard < world->scenario.n_shards &&
           world->channels[node][shard].length > 0;
}

bool world_has_news(const World *world, uint32_t node, uint32_t shard)
{
    if (shard >= world->scenario.n_shards)
        return false;
    for (uint32_t source = 0; source < world->n_sources; source++)
        if (node_of_source(world, source) == node &&
            world->clocks_told[source][shard] != clock_of_source(world, source))
            return true;
    return false;
}

uint64_t world_clock(const World *world, uint32_t worker)
{
    return world->workers[worker].clock;
}

uint32_t world_n_told(const World *world, uint32_t worker)
{
    return world->workers[worker].n_told;
}

bool world_has_got(const World *world, uint32_t worker)
{
    return world->workers[worker].has_got;
}

bool world_is_over(const World *world)
{
    return world_true_min(world) == RUBATO_CLOCK_RETIRED;
}

uint32_t world_iteration_keys(const World *world, uint32_t worker, uint8_t *keys)
{
    const Worker *self = &world->workers[worker];
    uint32_t n = 0;

    for (uint8_t key = 0; self->clock < MAX_ITERATIONS && key < N_KEYS; key++)
        if ((self->told[self->clock] & (UINT32_C(1) << key)) != 0)
            keys[n++] = key;
    return n;
}

const char *world_failure(const World *world)
{
    return world->failure;
}

/* ---- sending ---- */

static Message *make_message(World *world, MessageKind kind, uint32_t worker, uint64_t clock)
{
    Message *message = g_new0(Message, 1);

    message->kind = kind;
    message->request.worker = worker;
    message->request.clock = clock;
    message->request.keys.keys = message->keys;
    g_ptr_array_add(world->messages, message);
    return message;
}

static void send(World *world, uint32_t node, uint32_t shard, Message *message)
{
    g_queue_push_tail(&world->channels[node][shard], message);
}

static void tell_clocks(World *world, uint32_t node, uint32_t shard)
{
    for (uint32_t source = 0; source < world->n_sources; source++) {
        const uint64_t clock = clock_of_source(world, source);

        if (node_of_source(world, source) != node || world->clocks_told[source][shard] == clock)
            continue;
        Message *message = make_message(world, MESSAGE_CLOCK, 0, clock);
        message->source = source;
        world->clocks_told[source][shard] = clock;
        send(world, node, shard, message);
    }
}

/* The part of a call that concerns one shard; whether there is any. */
static bool fill_part(World *world, Message *message, uint32_t shard, const RubatoKey *keys,
                      size_t n)
{
    size_t n_part = 0;

    for (uint32_t i = 0; i < n; i++)
        if (shard_of(world, keys[i]) == shard) {
            message->at[n_part] = i;
            message->keys[n_part++] = keys[i];
        }
    message->request.keys.n = n_part;
    return n_part > 0;
}

static void send_get(World *world, const Action *action, const RubatoKey *keys)
{
    const uint32_t node = world->scenario.node_of[action->worker];
    Worker *self = &world->workers[action->worker];
    Get *get = g_new0(Get, 1);

    g_ptr_array_add(world->gets, get);
    get->worker = action->worker;
    get->clock = self->clock;
    get->n = action->n_keys;
    memcpy(get->keys, keys, get->n * sizeof *keys);
    for (size_t i = 0; i < get->n; i++)
        get->own[i] = world->n_log[get->worker][keys[i] - FIRST_KEY];
    for (uint32_t shard = 0; shard < world->scenario.n_shards; shard++) {
        Message *message = make_message(world, MESSAGE_GET, get->worker, get->clock);

        if (!fill_part(world, message, shard, keys, get->n))
            continue;
        message->get = get;
        message->is_selection = (action->bits >> shard & 1) != 0;
        message->request.output = message->values;
        if (message->is_selection) {
            message->request.keys.keys = get->keys;
            message->request.keys.at = message->at;
            message->request.output = get->values;
        }
        get->n_pending++;
        send(world, node, shard, message);
    }
    if (get->n_pending == 0)
        return;
    self->n_pending++;
    if (action->waits)
        self->waits_for = get;
}

static void send_add(World *world, const Action *action, const RubatoKey *keys)
{
    const uint32_t worker = action->worker, width = world->scenario.n_workers;
    const uint64_t clock = world->workers[worker].clock;

    for (uint32_t shard = 0; shard < world->scenario.n_shards; shard++) {
        Message *message = make_message(world, MESSAGE_ADD, worker, clock);

        if (!fill_part(world, message, shard, keys, action->n_keys))
            continue;
        message->request.input = message->values;
        for (size_t i = 0; i < message->request.keys.n; i++) {
            const RubatoKey key = message->keys[i];
            uint32_t *n_log = &world->n_log[worker][key - FIRST_KEY];
            uint64_t power = 1;

            if (*n_log == MAX_ADDS)
                continue; /* adds zero */
            for (uint32_t j = 0; j < *n_log; j++)
                power *= 3;
            world->log[worker][key - FIRST_KEY][(*n_log)++] = clock;
            message->values[i * width + worker] = (int64_t)power;
        }
        send(world, world->scenario.node_of[worker], shard, message);
    }
}

/* Keys whose bit is set come in a message of their own, in front of the others. */
static void send_announcement(World *world, const Action *action, uint64_t iteration,
                              const RubatoKey *keys)
{
    const uint32_t node = world->scenario.node_of[action->worker];

    for (uint32_t shard = 0; shard < world->scenario.n_shards; shard++) {
        Message *message = make_message(world, MESSAGE_ANNOUNCE, action->worker, iteration);
        fill_part(world, message, shard, keys, action->n_keys);
        const size_t n_all = message->request.keys.n;
        size_t begin = 0;

        while (n_all - begin > 1 && (action->bits >> begin & 1) != 0) {
            Message *piece = make_message(world, MESSAGE_ANNOUNCE, action->worker, iteration);

            piece->keys[0] = message->keys[begin++];
            piece->request.keys.n = 1;
            piece->request.n_announced = n_all;
            send(world, node, shard, piece);
        }
        if (begin > 0)
            message->request.n_announced = n_all;
        message->request.keys.keys += begin;
        message->request.keys.n -= begin;
        send(world, node, shard, message);
    }
}

static void set_clock(World *world, const Action *action, uint64_t clock)
{
    Worker *self = &world->workers[action->worker];

    self->clock = clock;
    self->has_got = false;
    for (uint32_t shard = 0; shard < world->scenario.n_shards; shard++)
        if ((action->bits >> shard & 1) != 0)
            tell_clocks(world, world->scenario.node_of[action->worker], shard);
}

/* ---- delivering ---- */

/* What the shard knows from now on. */
static void note(Shard *shard, Message *message)
{
    const RubatoRequest *request = &message->request;
    const uint32_t worker = request->worker;

    if (message->kind == MESSAGE_CLOCK) {
        shard->clocks[message->source] = request->clock;
    } else if (message->kind == MESSAGE_GET) {
        g_ptr_array_add(shard->parked, message);
    } else if (message->kind == MESSAGE_ANNOUNCE && request->clock == RUBATO_CLOCK_RETIRED) {
        shard->n_told[worker] = UINT32_MAX;
    } else if (message->kind == MESSAGE_ANNOUNCE) {
        for (size_t i = 0; i < request->keys.n; i++)
            shard->told[worker][request->clock] |= bit_of(request->keys.keys[i]);
        shard->n_told_keys[worker] += (uint32_t)request->keys.n;
        if (request->n_announced == 0 || shard->n_told_keys[worker] == request->n_announced) {
            shard->n_told[worker] = (uint32_t)request->clock + 1;
            shard->n_told_keys[worker] = 0;
        }
    }
}

static void tell_delivery(World *world, uint32_t shard, const Message *message)
{
    static const char *const names[] = { "Get", "Add", "clock", "announcement" };
    g_autofree char *clock = clock_text(message->request.clock);

    if (message->kind == MESSAGE_CLOCK)
        world_tell(world, "  shard %u hears that %s %u is %s%s\n", shard,
                   world->has_worker_clocks ? "worker" : "node", message->source,
                   message->request.clock == RUBATO_CLOCK_RETIRED ? "" : "at clock ", clock);
    else
        world_tell(world, "  shard %u takes worker %u's %s of clock %s\n", shard,
                   message->request.worker, names[message->kind], clock);
}

static void give(Shard *shard, Message *message)
{
    switch (message->kind) {
    case MESSAGE_GET:
        rubato_model_driver_get(shard->driver, &message->request);
        break;
    case MESSAGE_ADD:
        rubato_model_driver_add(shard->driver, &message->request);
        break;
    case MESSAGE_CLOCK:
        rubato_model_driver_clock(shard->driver, message->source, message->request.clock);
        break;
    case MESSAGE_ANNOUNCE:
        rubato_model_driver_announce(shard->driver, &message->request);
        break;
    }
}

static void deliver(World *world, uint32_t node, uint32_t number)
{
    Shard *shard = &world->shards[number];
    Message *message = g_queue_pop_head(&world->channels[node][number]);
    bool is_back = message->kind == MESSAGE_GET || message->kind == MESSAGE_CLOCK;

    tell_delivery(world, number, message);
    note(shard, message);
    give(shard, message);
    for (RubatoRequest *request = rubato_model_driver_take(shard->driver), *next; request != NULL;
         request = next) {
        Message *answered = (Message *)request;

        next = request->next;
        if (answered->kind == MESSAGE_GET) {
            judge_answer(world, shard, answered);
            continue;
        }
        if (answered != message || is_back)
            world_fail(world, "an Add or announcement came back twice, or in a later call");
        is_back = true;
        memset(answered->values, 0xee, sizeof answered->values); /* whoever still looks sees it */
        memset(answered->keys, 0xee, sizeof answered->keys);
    }
    if (!is_back)
        world_fail(world, "an Add or announcement did not come back in the call that brought it");
    if (rubato_model_driver_min_clock(shard->driver) != rubato_test_view_min_clock(shard))
        world_fail(world, "shard %u has a wrong min clock", number);
    judge_parked(world, shard);
}

/* ---- actions ---- */

/* A worker that tells uses the keys that it has told, and tells as far ahead as it must. */
static bool may_call(const World *world, const Action *action)
{
    const Worker *self = &world->workers[action->worker];
    const uint64_t ahead = MAX(world->scenario.spec.speculation, 1);
    uint32_t used = 0;

    if (!world->scenario.tells[action->worker])
        return true;
    for (uint8_t i = 0; i < action->n_keys; i++)
        used |= UINT32_C(1) << action->keys[i];
    if (self->clock >= MAX_ITERATIONS || (used & ~self->told[self->clock]) != 0)
        return false;
    return action->kind == ACTION_ADD
               ? self->has_got
               : !self->has_got && action->waits && self->n_told >= self->clock + ahead;
}

/* A worker that tells ends an iteration after its Get. */
static bool may_clock(const World *world, const Action *action)
{
    return !world->scenario.tells[action->worker] || world->workers[action->worker].has_got;
}

static bool is_possible(const World *world, const Action *action)
{
    const Scenario *scenario = &world->scenario;

    if (action->kind == ACTION_DELIVER)
        return world_has_mail(world, action->node, action->shard);
    if (action->kind == ACTION_TELL)
        return world_has_news(world, action->node, action->shard);
    if (action->worker >= scenario->n_workers || !world_can_step(world, action->worker))
        return false;

    const Worker *self = &world->workers[action->worker];
    switch (action->kind) {
    case ACTION_GET:
    case ACTION_ADD:
        return may_call(world, action);
    case ACTION_CLOCK:
        return may_clock(world, action);
    case ACTION_RETIRE:
        return self->n_pending == 0;
    case ACTION_ANNOUNCE:
        return scenario->tells[action->worker] && self->n_told < MAX_ITERATIONS;
    case ACTION_END_TELLING:
        return scenario->tells[action->worker] && self->n_told != UINT32_MAX;
    case ACTION_TELL:
    case ACTION_DELIVER:
        break;
    }
    g_assert_not_reached();
}

static void tell_action(World *world, const Action *action, const RubatoKey *keys)
{
    static const char *const verbs[] = {
        [ACTION_GET] = "gets",
        [ACTION_ADD] = "adds to",
        [ACTION_ANNOUNCE] = "announces",
    };
    const Worker *self = &world->workers[action->worker];

    switch (action->kind) {
    case ACTION_GET:
    case ACTION_ADD:
    case ACTION_ANNOUNCE:
        world_tell(world, "worker %u (node %u, clock %u) %s", action->worker,
                   world->scenario.node_of[action->worker], (unsigned)self->clock,
                   verbs[action->kind]);
        tell_keys(world, keys, action->n_keys);
        if (action->kind == ACTION_ANNOUNCE)
            world_tell(world, " for clock %u", self->n_told);
        world_tell(world, action->kind == ACTION_GET && action->waits ? " and waits\n" : "\n");
        break;
    case ACTION_CLOCK:
        world_tell(world, "worker %u clocks: %u\n", action->worker, (unsigned)self->clock + 1);
        break;
    case ACTION_RETIRE:
        world_tell(world, "worker %u retires\n", action->worker);
        break;
    case ACTION_END_TELLING:
        world_tell(world, "worker %u announces that it will use no more keys\n", action->worker);
        break;
    case ACTION_TELL:
    case ACTION_DELIVER:
        break;
    }
}

bool world_perform(World *world, const Action *action)
{
    RubatoKey keys[MAX_CALL_KEYS];

    if (world->failure != NULL || !is_possible(world, action))
        return false;
    for (uint8_t i = 0; i < action->n_keys; i++)
        keys[i] = FIRST_KEY + action->keys[i];
    tell_action(world, action, keys);

    Worker *self = &world->workers[action->worker];
    switch (action->kind) {
    case ACTION_GET:
        self->has_got = true;
        send_get(world, action, keys);
        break;
    case ACTION_ADD:
        send_add(world, action, keys);
        break;
    case ACTION_CLOCK:
        set_clock(world, action, self->clock + 1);
        break;
    case ACTION_RETIRE:
        set_clock(world, action, RUBATO_CLOCK_RETIRED);
        break;
    case ACTION_ANNOUNCE:
        for (uint8_t i = 0; i < action->n_keys; i++)
            self->told[self->n_told] |= UINT32_C(1) << action->keys[i];
        send_announcement(world, action, self->n_told++, keys);
        break;
    case ACTION_END_TELLING:
        self->n_told = UINT32_MAX;
        send_announcement(world, &(Action){ .worker = action->worker }, RUBATO_CLOCK_RETIRED, keys);
        break;
    case ACTION_TELL:
        tell_clocks(world, action->node, action->shard);
        break;
    case ACTION_DELIVER:
        deliver(world, action->node, action->shard);
        break;
    }
    return true;
}

/* ---- the beginning and the end ---- */

static void open_shards(World *world)
{
    const Scenario *scenario = &world->scenario;

    for (uint32_t i = 0; i < scenario->n_shards; i++) {
        Shard *shard = &world->shards[i];
        const RubatoKey end = FIRST_KEY + N_KEYS * (i + 1) / scenario->n_shards;
        g_autoptr(GError) error = NULL;

        shard->world = world;
        shard->parked = g_ptr_array_new();
        shard->first_key = FIRST_KEY + N_KEYS * i / scenario->n_shards;
        shard->n_keys = end - shard->first_key;
        const RubatoModelDriverSetup setup = { .spec = &scenario->spec,
                                               .first_key = shard->first_key,
                                               .n_keys = shard->n_keys,
                                               .n_workers = scenario->n_workers,
                                               .n_nodes = scenario->n_nodes };
        shard->driver = rubato_model_driver_new(&setup, &error);
        if (shard->driver == NULL) {
            world_fail(world, "the table: %s", error->message);
            return;
        }
        /* A node without workers never tells anything. */
        for (uint32_t source = 0; source < world->n_sources; source++)
            if (clock_of_source(world, source) == RUBATO_CLOCK_RETIRED) {
                world->clocks_told[source][i] = shard->clocks[source] = RUBATO_CLOCK_RETIRED;
                rubato_model_driver_clock(shard->driver, source, RUBATO_CLOCK_RETIRED);
            }
    }
}

World *world_new(const Scenario *scenario, GString *story)
{
    const RubatoModelTraits *traits = rubato_model_traits(scenario->spec.model);
    World *world = g_new0(World, 1);

    world->scenario = *scenario;
    world->story = story;
    world->gets = g_ptr_array_new_with_free_func(g_free);
    world->messages = g_ptr_array_new_with_free_func(g_free);
    if (traits == NULL) {
        world_fail(world, "there is no model \"%s\"; register it first", scenario->spec.model);
        return world;
    }
    world->has_worker_clocks = traits->per_worker_clocks;
    world->n_sources = world->has_worker_clocks ? scenario->n_workers : scenario->n_nodes;
    open_shards(world);
    return world;
}

void world_free(World *world)
{
    for (uint32_t i = 0; i < MAX_SHARDS; i++) {
        Shard *shard = &world->shards[i];

        rubato_model_driver_free(shard->driver);
        if (shard->parked != NULL)
            g_ptr_array_unref(shard->parked);
    }
    for (uint32_t node = 0; node < MAX_NODES; node++)
        for (uint32_t shard = 0; shard < MAX_SHARDS; shard++)
            g_queue_clear(&world->channels[node][shard]);
    g_ptr_array_unref(world->gets);
    g_ptr_array_unref(world->messages);
    g_free(world->failure);
    g_free(world);
}

/* Whatever can go on does so, until nothing can. */
static void drain(World *world)
{
    bool any = true;

    while (any && world->failure == NULL) {
        any = false;
        for (uint8_t node = 0; node < world->scenario.n_nodes; node++)
            for (uint8_t shard = 0; shard < world->scenario.n_shards; shard++) {
                const Action tells = { .kind = ACTION_TELL, .node = node, .shard = shard };
                const Action delivers = { .kind = ACTION_DELIVER, .node = node, .shard = shard };

                any |= world_perform(world, &tells);
                while (world_perform(world, &delivers))
                    any = true;
            }
        for (uint8_t worker = 0; !any && worker < world->scenario.n_workers; worker++)
            any = world_perform(world, &(Action){ .kind = ACTION_RETIRE, .worker = worker });
    }
}

static void close_shard(World *world, Shard *shard)
{
    if (shard->driver == NULL)
        return;
    /* What waits when a run has failed is given back too, but nobody asks. */
    for (const RubatoRequest *request = rubato_model_driver_end(shard->driver); request != NULL;
         request = request->next)
        if (!g_ptr_array_remove_fast(shard->parked, (gpointer)(uintptr_t)request))
            world_fail(world, "a Get was dropped that was not parked");
    if (shard->parked->len > 0)
        world_fail(world, "%u parked Gets were not given back at the end of the task",
                   shard->parked->len);
    judge_rows(world, shard, !world->scenario.is_cut_off && world_is_over(world));
}

void world_end(World *world)
{
    if (!world->scenario.is_cut_off)
        drain(world);
    else
        world_tell(world, "the task is cancelled\n");
    for (uint32_t i = 0; !world->scenario.is_cut_off && i < world->scenario.n_workers; i++)
        if (world->workers[i].clock != RUBATO_CLOCK_RETIRED)
            world_fail(world, "worker %u waits for ever at clock %u", i,
                       (unsigned)world->workers[i].clock);
    for (guint i = 0; i < world->gets->len; i++)
        judge_get(world, world->gets->pdata[i]);
    for (uint32_t i = 0; i < world->scenario.n_shards; i++)
        close_shard(world, &world->shards[i]);
}
