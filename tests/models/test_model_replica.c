/* A part is a deterministic state machine (docs/replication.md): a second one that gets the same
 * inputs in the same order, and no Gets, has the same bytes. It can go on in place of the first one
 * at any time: it answers the Gets that the first one has not answered, and all later ones, with
 * the same rows and after the same inputs.
 *
 * A seed decides what workers do, in which order, and when the second part takes over. */
#include "models/model.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

#define N_KEYS 24
#define WIDTH 3
#define N_WORKERS 3 /* one on each node, so that clocks have the same sources under each model */
#define N_CLOCKS 12
#define N_USED 4 /* keys of an iteration */
#define N_SEEDS 60

typedef struct {
    RubatoRequest request; /* first */
    float values[N_USED * WIDTH];
    bool is_answered;
} Asked;

typedef struct {
    RubatoShard *shard;
    RubatoModel *model;
    Asked gets[N_WORKERS];
} Part;

typedef enum { STAGE_ANNOUNCE, STAGE_GET, STAGE_ADD, STAGE_CLOCK } Stage;

typedef struct {
    uint64_t clock;
    Stage stage;
    bool waits; /* for its Get */
    RubatoKey keys[N_USED], next_keys[N_USED];
} Worker;

typedef struct {
    RubatoTableSpec spec;
    GRand *random;
    Part first, second;
    bool second_serves;
    Worker workers[N_WORKERS];
} Trial;

static const RubatoTableSpec SPECS[] = {
    { .model = "asp", .update = "adam" },
    { .model = "asp", .storage = "dense", .update = "assign" },
    { .model = "asp", .update = "adam", .storage = "hash", .expire = "clocks", .expire_after = 3 },
    { .model = "bsp", .update = "add" },
    { .model = "ssp",
      .staleness = 1,
      .storage = "hash",
      .update = "add",
      .expire = "score",
      .expire_below = 4,
      .expire_decay = .5 },
    { .model = "bsp",
      .storage = "hash",
      .update = "adagrad",
      .expire = "clocks",
      .expire_after = 2 },
    { .model = "bsp", .storage = "dense", .update = "adagrad" },
    { .model = "bsp", .update = "sgd", .aggregate = RUBATO_AGGREGATE_MEAN },
    { .model = "ssp", .staleness = 0, .update = "momentum" },
    { .model = "ssp", .staleness = 2, .storage = "dense", .update = "ftrl" },
    { .model = "sparse_ssp", .staleness = 0, .speculation = 2, .update = "adam" },
    { .model = "sparse_ssp", .staleness = 1, .speculation = 1, .update = "rmsprop" },
    { .model = "sparse_ssp",
      .staleness = 1,
      .speculation = 3,
      .storage = "dense",
      .record = "dense",
      .update = "add" },
};

static void init_part(Part *part, const RubatoTableSpec *spec)
{
    const RubatoModelSetup setup = { .spec = spec, .n_workers = N_WORKERS, .n_keys = N_KEYS };

    *part = (Part){ .shard = shard_new(spec, 0, N_KEYS, NULL) };
    part->model = model_new(&setup, part->shard, N_WORKERS, NULL);
    ck_assert_ptr_nonnull(part->model);
}

static void clear_part(Part *part)
{
    ck_assert_ptr_null(model_free(part->model));
    shard_free(part->shard);
}

static void take_answers(Part *part)
{
    for (RubatoRequest *request = model_take_answered(part->model); request != NULL;
         request = request->next)
        for (uint32_t i = 0; i < N_WORKERS; i++)
            if (request == &part->gets[i].request)
                part->gets[i].is_answered = true;
}

static void ask(const Trial *trial, Part *part, uint32_t rank)
{
    Asked *get = &part->gets[rank];
    const Worker *worker = &trial->workers[rank];

    *get = (Asked){ .request = { .worker = rank,
                                 .clock = worker->clock,
                                 .keys = { .keys = worker->keys, .n = N_USED },
                                 .output = get->values } };
    model_get(part->model, &get->request);
    take_answers(part);
}

/* Both parts get the input; the models give it back in the call. */
static void put(Trial *trial, void (*op)(RubatoModel *model, RubatoRequest *request),
                const RubatoRequest *input)
{
    Part *const parts[] = { &trial->first, &trial->second };

    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
        RubatoRequest request = *input;

        op(parts[i]->model, &request);
        take_answers(parts[i]);
    }
}

static void put_clock(Trial *trial, uint32_t rank, uint64_t clock)
{
    model_clock(trial->first.model, rank, clock);
    take_answers(&trial->first);
    model_clock(trial->second.model, rank, clock);
    take_answers(&trial->second);
}

static void draw_keys(Trial *trial, RubatoKey *keys)
{
    for (size_t i = 0; i < N_USED; i++)
        keys[i] = (RubatoKey)g_rand_int_range(trial->random, 0, N_KEYS);
}

static void announce(Trial *trial, uint32_t rank, uint64_t clock, const RubatoKey *keys, size_t n)
{
    put(trial, model_announce,
        &(RubatoRequest){
            .worker = rank, .clock = clock, .keys = { .keys = keys, .n = n }, .n_announced = n });
}

static void add(Trial *trial, uint32_t rank)
{
    const Worker *worker = &trial->workers[rank];
    float deltas[N_USED * WIDTH];

    for (size_t i = 0; i < G_N_ELEMENTS(deltas); i++)
        deltas[i] = (float)g_rand_double_range(trial->random, -1, 1);
    put(trial, model_add,
        &(RubatoRequest){ .worker = rank,
                          .clock = worker->clock,
                          .keys = { .keys = worker->keys, .n = N_USED },
                          .input = deltas });
}

/* Another learning rate, if the rule has one. */
static void tune(Trial *trial, uint32_t rank)
{
    const RubatoTuning tuning = { RUBATO_HYPER_LEARNING_RATE,
                                  g_rand_double_range(trial->random, 0.01, 0.1) };

    if (shard_tuning_ok(trial->first.shard, &tuning))
        put(trial, model_tune,
            &(RubatoRequest){
                .worker = rank, .clock = trial->workers[rank].clock, .tuning = tuning });
}

static void go_on(Trial *trial, uint32_t rank)
{
    Worker *worker = &trial->workers[rank];
    const bool is_last = worker->clock + 1 == N_CLOCKS;

    switch (worker->stage) {
    case STAGE_ANNOUNCE: /* the keys of the next iteration */
        draw_keys(trial, worker->next_keys);
        announce(trial, rank, is_last ? RUBATO_CLOCK_RETIRED : worker->clock + 1, worker->next_keys,
                 is_last ? 0 : N_USED);
        worker->stage = STAGE_GET;
        break;
    case STAGE_GET:
        ask(trial, &trial->first, rank);
        if (trial->second_serves)
            ask(trial, &trial->second, rank);
        worker->waits = !trial->first.gets[rank].is_answered;
        worker->stage = STAGE_ADD;
        break;
    case STAGE_ADD:
        if (g_rand_int_range(trial->random, 0, 8) == 0)
            tune(trial, rank);
        add(trial, rank);
        if (g_rand_int_range(trial->random, 0, 3) > 0)
            worker->stage = STAGE_CLOCK;
        break;
    case STAGE_CLOCK:
        memcpy(worker->keys, worker->next_keys, sizeof worker->keys);
        worker->clock++;
        worker->stage = STAGE_ANNOUNCE;
        put_clock(trial, rank, is_last ? RUBATO_CLOCK_RETIRED : worker->clock);
        break;
    }
}

static void require_same_rows(Trial *trial, uint64_t seed)
{
    const size_t row_bytes = shard_row_bytes(trial->first.shard);
    const size_t state_bytes = spec_state_bytes(&trial->spec);
    const RubatoKeys keys = { .n = N_KEYS };
    g_autofree char *first = g_malloc0(N_KEYS * MAX(row_bytes, state_bytes));
    g_autofree char *second = g_malloc0(N_KEYS * MAX(row_bytes, state_bytes));

    shard_get(trial->first.shard, &keys, first);
    shard_get(trial->second.shard, &keys, second);
    require_msg(memcmp(first, second, N_KEYS * row_bytes) == 0,
                "seed %" G_GUINT64_FORMAT ": rows differ", seed);
    if (state_bytes > 0) {
        shard_get_state(trial->first.shard, &keys, first);
        shard_get_state(trial->second.shard, &keys, second);
        require_msg(memcmp(first, second, N_KEYS * state_bytes) == 0,
                    "seed %" G_GUINT64_FORMAT ": states differ", seed);
    }
    require_msg(shard_n_rows(trial->first.shard) == shard_n_rows(trial->second.shard),
                "seed %" G_GUINT64_FORMAT ": another number of rows", seed);
    require_msg(rubato_model_min_clock(trial->first.model) ==
                    rubato_model_min_clock(trial->second.model),
                "seed %" G_GUINT64_FORMAT ": clocks differ", seed);
}

/* The second part is asked what the first one has not answered. */
static void take_over(Trial *trial, uint64_t seed)
{
    require_same_rows(trial, seed);
    trial->second_serves = true;
    for (uint32_t i = 0; i < N_WORKERS; i++)
        if (trial->workers[i].waits)
            ask(trial, &trial->second, i);
        else
            trial->second.gets[i] = trial->first.gets[i];
}

static void require_same_answers(const Trial *trial, uint64_t seed)
{
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        const Asked *first = &trial->first.gets[i], *second = &trial->second.gets[i];

        require_msg(first->is_answered == second->is_answered,
                    "seed %" G_GUINT64_FORMAT ": worker %u is answered by one part only", seed, i);
        require_msg(memcmp(first->values, second->values, sizeof first->values) == 0,
                    "seed %" G_GUINT64_FORMAT ": worker %u reads other rows", seed, i);
    }
}

/* A worker that can go on; N_WORKERS: all have ended. */
static uint32_t choose(Trial *trial)
{
    uint32_t able[N_WORKERS], n = 0;

    for (uint32_t i = 0; i < N_WORKERS; i++) {
        Worker *worker = &trial->workers[i];

        worker->waits = worker->waits && !trial->first.gets[i].is_answered;
        if (worker->clock < N_CLOCKS && !worker->waits)
            able[n++] = i;
    }
    return n == 0 ? N_WORKERS : able[g_rand_int_range(trial->random, 0, (gint32)n)];
}

static void run(const RubatoTableSpec *base, uint64_t seed)
{
    RubatoTableSpec spec = *base;

    spec.name = "twofold";
    spec.dtype = RUBATO_F32;
    spec.width = WIDTH;
    spec.n_keys = N_KEYS;

    Trial trial = { .spec = fitting_spec(spec), .random = g_rand_new_with_seed((guint32)seed) };
    int steps = g_rand_int_range(trial.random, 0, N_CLOCKS * N_WORKERS * 5);

    ck_assert(spec_check(&trial.spec, NULL));
    init_part(&trial.first, &trial.spec);
    init_part(&trial.second, &trial.spec);
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        draw_keys(&trial, trial.workers[i].keys);
        announce(&trial, i, 0, trial.workers[i].keys, N_USED);
    }
    for (uint32_t rank; (rank = choose(&trial)) < N_WORKERS;) {
        if (steps-- == 0)
            take_over(&trial, seed);
        go_on(&trial, rank);
        if (trial.second_serves)
            require_same_answers(&trial, seed);
    }
    for (uint32_t i = 0; i < N_WORKERS; i++)
        require_msg(trial.workers[i].clock == N_CLOCKS,
                    "seed %" G_GUINT64_FORMAT ": worker %u waits", seed, i);
    require_same_rows(&trial, seed);
    clear_part(&trial.first);
    clear_part(&trial.second);
    g_rand_free(trial.random);
}

START_TEST(a_part_with_the_same_inputs_can_go_on_in_place_of_another)
{
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
        run(&SPECS[_i], seed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_replica");
    TCase *tcase = tcase_create("state");

    tcase_add_loop_test(tcase, a_part_with_the_same_inputs_can_go_on_in_place_of_another, 0,
                        G_N_ELEMENTS(SPECS));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
