/* Seeded simulation: workers on nodes run random programs against the models of several shards.
 * Channels keep the order of messages from one node to one shard, and no other order.
 *
 * After each delivery, the Gets that a model has answered must be exactly those that the judges of
 * tests/support/model_world.h allow. What each Get has seen is compared with what it had to see and
 * could see. At the end the rows must hold every Add, and every program must have ended. Some runs
 * are cut off in the middle instead: then the parked Gets must come back.
 *
 * RUBATO_SEEDS is the number of seeds to run; RUBATO_SEED runs one seed alone. */
#include <stdlib.h>
#include <string.h>

#include "models/spec.h"
#include "tests/support/model_world.h"
#include "tests/support/runner.h"

#define N_BATCHES 8
#define DEFAULT_SEEDS 8000

static uint32_t pick(World *world, uint32_t n)
{
    return (uint32_t)g_rand_int_range(world->rand, 0, (gint32)n);
}

static bool percent(World *world, uint32_t chance)
{
    return pick(world, 100) < chance;
}

static uint32_t place_of(const World *world, RubatoKey key)
{
    uint32_t i = 0;

    while (key - world->places[i].first_key >= world->places[i].n_keys)
        i++;
    return i;
}

/* Sending */

static Message *make_message(World *world, Kind kind, uint32_t worker, uint64_t clock)
{
    Message *message = g_new0(Message, 1);

    message->kind = kind;
    message->request.worker = worker;
    message->request.clock = clock;
    message->request.keys.keys = message->keys;
    g_ptr_array_add(world->messages, message);
    return message;
}

static void send(World *world, uint32_t node, uint32_t place, Message *message)
{
    g_queue_push_tail(&world->channels[node][place], message);
}

static void send_clock(World *world, uint32_t node, uint32_t place, uint32_t source, uint64_t clock,
                       uint64_t *told)
{
    Message *message = make_message(world, KIND_CLOCK, 0, clock);

    message->source = source;
    *told = clock;
    send(world, node, place, message);
}

static uint64_t node_clock(const World *world, uint32_t node)
{
    uint64_t min = RUBATO_CLOCK_RETIRED;

    for (uint32_t i = 0; i < world->n_workers; i++)
        if (world->workers[i].node == node)
            min = MIN(min, world->workers[i].clock);
    return min;
}

/* Tells a shard the clocks of a node that it has not been told; whether there were any. */
static bool flush_clocks(World *world, uint32_t node, uint32_t place)
{
    bool any = false;

    if (!world->has_worker_clocks) {
        const uint64_t clock = node_clock(world, node);

        if (clock == world->node_clocks_told[node][place])
            return false;
        send_clock(world, node, place, node, clock, &world->node_clocks_told[node][place]);
        return true;
    }
    for (uint32_t i = 0; i < world->n_workers; i++) {
        Worker *worker = &world->workers[i];

        if (worker->node != node || worker->clock == worker->clocks_told[place])
            continue;
        send_clock(world, node, place, i, worker->clock, &worker->clocks_told[place]);
        any = true;
    }
    return any;
}

static void set_clock(World *world, uint32_t worker, uint64_t clock)
{
    world->workers[worker].clock = clock;
    for (uint32_t place = 0; place < world->n_places; place++)
        if (percent(world, 75)) /* otherwise told later */
            flush_clocks(world, world->workers[worker].node, place);
}

/* The part of a call that concerns one shard; whether there is any. */
static bool fill_part(World *world, Message *message, uint32_t place, const RubatoKey *keys,
                      size_t n)
{
    size_t n_part = 0;

    for (uint32_t i = 0; i < n; i++)
        if (place_of(world, keys[i]) == place) {
            message->at[n_part] = i;
            message->keys[n_part++] = keys[i];
        }
    message->request.keys.n = n_part;
    return n_part > 0;
}

static void send_get(World *world, uint32_t worker, const RubatoKey *keys, size_t n, bool waits)
{
    Worker *self = &world->workers[worker];
    Get *get = g_new0(Get, 1);

    g_ptr_array_add(world->gets, get);
    get->worker = worker;
    get->clock = self->clock;
    get->n = n;
    memcpy(get->keys, keys, n * sizeof(*keys));
    for (size_t i = 0; i < n; i++)
        get->own[i] = world->n_log[worker][keys[i] - FIRST_KEY];
    for (uint32_t place = 0; place < world->n_places; place++) {
        Message *message = make_message(world, KIND_GET, worker, self->clock);

        if (!fill_part(world, message, place, keys, n))
            continue;
        message->get = get;
        message->is_selection = percent(world, 50);
        message->request.output = message->values;
        if (message->is_selection) {
            message->request.keys.keys = get->keys;
            message->request.keys.at = message->at;
            message->request.output = get->values;
        }
        get->n_pending++;
        send(world, self->node, place, message);
    }
    if (get->n_pending == 0)
        return;
    self->n_pending++;
    if (waits)
        self->waits_for = get;
}

static void send_add(World *world, uint32_t worker, const RubatoKey *keys, size_t n)
{
    Worker *self = &world->workers[worker];
    const uint32_t width = world->n_workers;

    for (uint32_t place = 0; place < world->n_places; place++) {
        Message *message = make_message(world, KIND_ADD, worker, self->clock);

        if (!fill_part(world, message, place, keys, n))
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
            world->log[worker][key - FIRST_KEY][(*n_log)++] = self->clock;
            message->values[i * width + worker] = (int64_t)power;
        }
        send(world, self->node, place, message);
    }
}

/* A part of one key or more goes in one message or in several. */
static void send_announcement(World *world, uint32_t worker, uint64_t iteration, uint32_t used)
{
    const uint32_t node = world->workers[worker].node;
    RubatoKey keys[MAX_CALL_KEYS];
    size_t n = 0;

    for (RubatoKey key = FIRST_KEY; key < FIRST_KEY + N_KEYS; key++)
        if ((used & world_bit_of(key)) != 0)
            keys[n++] = key;
    for (uint32_t place = 0; place < world->n_places; place++) {
        Message *message = make_message(world, KIND_ANNOUNCE, worker, iteration);
        const bool has_keys = fill_part(world, message, place, keys, n);
        const size_t n_all = message->request.keys.n;
        size_t begin = 0;

        while (has_keys && n_all - begin > 1 && percent(world, 40)) {
            Message *piece = make_message(world, KIND_ANNOUNCE, worker, iteration);

            piece->keys[0] = message->keys[begin++];
            piece->request.keys.n = 1;
            piece->request.n_announced = n_all;
            send(world, node, place, piece);
        }
        if (begin > 0)
            message->request.n_announced = n_all;
        message->request.keys.keys += begin;
        message->request.keys.n -= begin;
        send(world, node, place, message);
    }
}

/* Workers */

static size_t pick_keys(World *world, RubatoKey *keys)
{
    const size_t n = pick(world, MAX_CALL_KEYS + 1);

    for (size_t i = 0; i < n; i++)
        keys[i] = FIRST_KEY + (RubatoKey)pick(world, N_KEYS);
    return n;
}

/* At clock v it has told the iterations up to v + q - 1. */
static void tell_ahead(World *world, uint32_t worker)
{
    Worker *self = &world->workers[worker];
    const uint64_t end = self->clock + MAX(world->spec.speculation, 1);

    while (self->n_told < end && self->n_told <= self->n_iterations) {
        if (self->n_told < self->n_iterations)
            send_announcement(world, worker, self->n_told, self->iterations[self->n_told]);
        else if (percent(world, 80)) /* some just end */
            send_announcement(world, worker, RUBATO_CLOCK_RETIRED, 0);
        self->n_told++;
    }
}

static void step_telling(World *world, uint32_t worker)
{
    Worker *self = &world->workers[worker];
    RubatoKey keys[MAX_CALL_KEYS];
    size_t n = 0;

    tell_ahead(world, worker);
    if (self->clock == self->n_iterations) {
        set_clock(world, worker, RUBATO_CLOCK_RETIRED);
        return;
    }
    for (RubatoKey key = FIRST_KEY; key < FIRST_KEY + N_KEYS; key++)
        if ((self->iterations[self->clock] & world_bit_of(key)) != 0)
            keys[n++] = key;
    if (!self->has_got) {
        self->has_got = true;
        send_get(world, worker, keys, n, /* waits= */ true);
    } else if (n > 0 && percent(world, 60)) {
        send_add(world, worker, keys + pick(world, (uint32_t)n), 1);
    } else {
        self->has_got = false;
        set_clock(world, worker, self->clock + 1);
    }
}

static void step_free(World *world, uint32_t worker)
{
    Worker *self = &world->workers[worker];
    RubatoKey keys[MAX_CALL_KEYS];
    const uint32_t what = pick(world, 100);
    const size_t n = pick_keys(world, keys);

    if (self->n_steps_left == 0) {
        set_clock(world, worker, RUBATO_CLOCK_RETIRED);
        return;
    }
    self->n_steps_left--;
    if (what < 40)
        send_get(world, worker, keys, n, /* waits= */ percent(world, 70));
    else if (what < 70)
        send_add(world, worker, keys, n);
    else
        set_clock(world, worker, self->clock + 1);
}

/* A worker that is at its end waits for what it has in flight. */
static bool can_step(const World *world, uint32_t worker)
{
    const Worker *self = &world->workers[worker];
    const bool at_end = self->tells ? self->clock == self->n_iterations : self->n_steps_left == 0;

    return self->clock != RUBATO_CLOCK_RETIRED && self->waits_for == NULL &&
           !(at_end && self->n_pending > 0);
}

static void step(World *world, uint32_t worker)
{
    if (world->workers[worker].tells)
        step_telling(world, worker);
    else
        step_free(world, worker);
}

/* Delivery */

static void note(Place *place, const Message *message)
{
    const RubatoRequest *request = &message->request;

    if (message->kind == KIND_CLOCK) {
        place->clocks[message->source] = MAX(place->clocks[message->source], request->clock);
    } else if (message->kind == KIND_ANNOUNCE && request->clock == RUBATO_CLOCK_RETIRED) {
        place->n_told[request->worker] = UINT32_MAX;
    } else if (message->kind == KIND_ANNOUNCE) {
        for (size_t i = 0; i < request->keys.n; i++)
            place->told[request->worker][request->clock] |= world_bit_of(request->keys.keys[i]);
        place->n_told_keys[request->worker] += (uint32_t)request->keys.n;
        if (request->n_announced == 0 ||
            place->n_told_keys[request->worker] == request->n_announced) {
            place->n_told[request->worker] = (uint32_t)request->clock + 1;
            place->n_told_keys[request->worker] = 0;
        }
    } else if (message->kind == KIND_GET) {
        g_ptr_array_add(place->parked, (gpointer)message);
    }
}

static void give(Place *place, Message *message)
{
    switch (message->kind) {
    case KIND_GET:
        model_get(place->model, &message->request);
        break;
    case KIND_ADD:
        model_add(place->model, &message->request);
        break;
    case KIND_CLOCK:
        model_clock(place->model, message->source, message->request.clock);
        break;
    case KIND_ANNOUNCE:
        model_announce(place->model, &message->request);
        break;
    }
}

static void deliver(World *world, uint32_t node, uint32_t place_number)
{
    Place *place = &world->places[place_number];
    Message *message = g_queue_pop_head(&world->channels[node][place_number]);
    bool is_back = message->kind == KIND_GET || message->kind == KIND_CLOCK;

    note(place, message);
    give(place, message);
    for (RubatoRequest *request = model_take_answered(place->model), *next; request != NULL;
         request = next) {
        Message *answered = (Message *)request;

        next = request->next;
        if (answered->kind != KIND_GET) {
            if (answered != message || is_back)
                FAIL(world, "an Add or announcement came back twice, or at another time");
            is_back = true;
            memset(answered->values, 0xee, sizeof(answered->values));
            memset(answered->keys, 0xee, sizeof(answered->keys));
            continue;
        }
        if (!world_may_be_answered(world, place, answered))
            FAIL(world, "shard %u answered worker %u at clock %u too early", place_number,
                 answered->request.worker, (unsigned)answered->request.clock);
        if (!g_ptr_array_remove_fast(place->parked, answered))
            FAIL(world, "shard %u answered a Get that it did not have", place_number);
        world_take_answer(world, answered);
    }
    if (!is_back)
        FAIL(world, "an Add or announcement did not come back");
    if (rubato_model_min_clock(place->model) != world_lowest(place->clocks, world->n_sources))
        FAIL(world, "shard %u has a wrong min clock", place_number);
    for (guint i = 0; i < place->parked->len; i++) {
        const Message *parked = place->parked->pdata[i];

        if (world_may_be_answered(world, place, parked))
            FAIL(world, "shard %u forgot worker %u at clock %u", place_number,
                 parked->request.worker, (unsigned)parked->request.clock);
    }
}

/* Does one random thing that can happen; false if nothing can. */
static bool happen(World *world)
{
    struct {
        uint32_t node, place;
    } full[MAX_NODES * MAX_SHARDS];
    uint32_t ready[MAX_WORKERS];
    uint32_t n_full = 0, n_ready = 0;

    for (uint32_t node = 0; node < world->n_nodes; node++)
        for (uint32_t place = 0; place < world->n_places; place++)
            if (!g_queue_is_empty(&world->channels[node][place])) {
                full[n_full].node = node;
                full[n_full++].place = place;
            }
    for (uint32_t i = 0; i < world->n_workers; i++)
        if (can_step(world, i) && (i != world->slow_worker || percent(world, 10)))
            ready[n_ready++] = i;
    if (n_full > 0 && (n_ready == 0 || percent(world, (uint32_t)world->delivery_percent))) {
        const uint32_t i = pick(world, n_full);

        deliver(world, full[i].node, full[i].place);
        return true;
    }
    if (n_ready > 0) {
        step(world, ready[pick(world, n_ready)]);
        return true;
    }
    for (uint32_t node = 0; node < world->n_nodes; node++)
        for (uint32_t place = 0; place < world->n_places; place++)
            if (flush_clocks(world, node, place))
                return true;
    if (world->slow_worker < world->n_workers && can_step(world, world->slow_worker)) {
        step(world, world->slow_worker);
        return true;
    }
    return false;
}

/* The beginning and the end */

static void choose_spec(World *world)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    RubatoTableSpec *spec = &world->spec;
    const bool is_dense = percent(world, 50);

    *spec = (RubatoTableSpec){
        .name = "world",
        .dtype = RUBATO_I64,
        .width = world->n_workers,
        .storage = is_dense ? "dense" : "hash",
        .first_key = FIRST_KEY,
        .n_keys = N_KEYS,
        /* the more intricate a model, the more seeds it gets */
        .model = models[MIN(world->seed % 8, 3)],
        .staleness = pick(world, 4),
        .speculation = pick(world, 4),
        .record = is_dense && percent(world, 50) ? "dense" : "hash",
    };
    if (!spec_check(spec, NULL))
        FAIL(world, "the spec is wrong");
}

static void place_workers(World *world)
{
    for (uint32_t i = 0; i < world->n_workers; i++) {
        Worker *self = &world->workers[i];

        self->node = pick(world, world->n_nodes);
        self->n_steps_left = pick(world, 40);
        self->tells = world_has_model(world, "sparse_ssp") && percent(world, 85);
        self->n_iterations = self->tells ? pick(world, 12) : 0;
        for (uint32_t t = 0; t < self->n_iterations; t++)
            for (uint32_t j = pick(world, MAX_CALL_KEYS); j > 0; j--)
                self->iterations[t] |= 1u << pick(world, N_KEYS);
    }
}

static void open_places(World *world)
{
    for (uint32_t i = 0; i < world->n_places; i++) {
        Place *place = &world->places[i];
        const RubatoKey end = FIRST_KEY + N_KEYS * (i + 1) / world->n_places;

        place->first_key = FIRST_KEY + N_KEYS * i / world->n_places;
        place->n_keys = end - place->first_key;
        place->parked = g_ptr_array_new();
        place->shard = shard_new(&world->spec, place->first_key, place->n_keys, NULL);

        const RubatoModelSetup setup = {
            .spec = &world->spec,
            .n_workers = world->n_workers,
            .first_key = place->first_key,
            .n_keys = place->n_keys,
        };
        place->model = model_new(&setup, place->shard, world->n_nodes, NULL);
        /* a node without workers never tells anything */
        for (uint32_t node = 0; !world->has_worker_clocks && node < world->n_nodes; node++)
            if (node_clock(world, node) == RUBATO_CLOCK_RETIRED) {
                world->node_clocks_told[node][i] = RUBATO_CLOCK_RETIRED;
                place->clocks[node] = RUBATO_CLOCK_RETIRED;
                model_clock(place->model, node, RUBATO_CLOCK_RETIRED);
            }
    }
}

/* Ends the task in a shard; the Gets that come back must be those that the bookkeeper has. */
static void close_place(World *world, Place *place, bool is_over)
{
    for (const RubatoRequest *request = model_free(place->model); request != NULL;
         request = request->next)
        if (!g_ptr_array_remove_fast(place->parked, (gpointer)request))
            FAIL(world, "a Get was dropped that was not parked");
    if (place->parked->len > 0)
        FAIL(world, "%u parked Gets were not given back", place->parked->len);
    world_judge_rows(world, place, is_over);
    shard_free(place->shard);
    g_ptr_array_unref(place->parked);
}

static void run_seed(unsigned seed)
{
    World *world = g_new0(World, 1);

    world->seed = seed;
    world->rand = g_rand_new_with_seed(seed);
    world->gets = g_ptr_array_new_with_free_func(g_free);
    world->messages = g_ptr_array_new_with_free_func(g_free);
    world->n_workers = 1 + pick(world, MAX_WORKERS);
    world->n_nodes = 1 + pick(world, MAX_NODES);
    world->n_places = 1 + pick(world, MAX_SHARDS);
    world->delivery_percent = g_rand_int_range(world->rand, 20, 90);
    world->slow_worker = pick(world, MAX_WORKERS * 2);
    choose_spec(world);
    world->has_worker_clocks = model_traits(&world->spec)->per_worker_clocks;
    world->n_sources = world->has_worker_clocks ? world->n_workers : world->n_nodes;
    place_workers(world);
    open_places(world);

    const bool is_cancelled = percent(world, 20);
    uint32_t n_left = is_cancelled ? pick(world, 400) : UINT32_MAX;
    bool is_over = false;
    while (!is_over && n_left-- > 0)
        is_over = !happen(world);

    for (uint32_t i = 0; is_over && i < world->n_workers; i++)
        if (world->workers[i].clock != RUBATO_CLOCK_RETIRED)
            FAIL(world, "worker %u hangs at clock %u", i, (unsigned)world->workers[i].clock);
    for (guint i = 0; i < world->gets->len; i++)
        world_judge_get(world, world->gets->pdata[i]);
    for (uint32_t i = 0; i < world->n_places; i++)
        close_place(world, &world->places[i], is_over);

    for (uint32_t node = 0; node < MAX_NODES; node++)
        for (uint32_t place = 0; place < MAX_SHARDS; place++)
            g_queue_clear(&world->channels[node][place]);
    g_ptr_array_unref(world->gets);
    g_ptr_array_unref(world->messages);
    g_rand_free(world->rand);
    g_free(world);
}

START_TEST(models_do_what_the_semantics_say)
{
    const char *one = g_getenv("RUBATO_SEED");
    const char *many = g_getenv("RUBATO_SEEDS");
    const unsigned n = many == NULL ? DEFAULT_SEEDS : (unsigned)strtoul(many, NULL, 10);

    if (one != NULL) {
        run_seed((unsigned)strtoul(one, NULL, 10));
        return;
    }
    for (unsigned seed = (unsigned)_i; seed < MAX(n, N_BATCHES); seed += N_BATCHES)
        run_seed(seed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model simulation");
    TCase *tcase = tcase_create("simulation");

    tcase_add_loop_test(tcase, models_do_what_the_semantics_say, 0, N_BATCHES);
    tcase_set_timeout(tcase, 100);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
