/* Gets, Adds and iterations of a worker that has the servers of its process for itself, or shares
 * them with others: all parts of a dense table in one pass over the keys. They give what a plain
 * array of the same rows gives, whatever model, width, servers and keys; also where only some of
 * the calls may go this way. */
#include <string.h>

#include "io/net/processors.h"
#include "tables/client/client_private.h"
#include "tables/handle.h"
#include "tables/joint.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 300, MOST_WIDTH = 3, MOST = JOINT_MOST_KEYS_TO_READ + 8, N_ROUNDS = 60 };

typedef struct {
    const char *model;
    RubatoDtype dtype;
    uint32_t width, servers;
    RubatoKey first_key;
    const char *update; /* NULL: add */
    RubatoOnBadGradient on_bad_gradient;
    bool moves; /* two parts come to one server */
} Scene;

static const Scene scenes[] = {
    { "asp", RUBATO_F32, 1, 2, 0, NULL, 0, false },
    { "ssp", RUBATO_F32, 1, 3, 1000, NULL, 0, false },
    { "bsp", RUBATO_F32, 1, 2, UINT64_MAX - N_KEYS + 1, NULL, 0, false },
    { "asp", RUBATO_I64, 1, 2, UINT64_MAX - N_KEYS + 1, NULL, 0, false },
    { "ssp", RUBATO_I64, 3, 4, 7, NULL, 0, false },
    { "asp", RUBATO_F64, 2, 4, 0, "assign", 0, false },
    { "bsp", RUBATO_F64, 3, 4, 5, NULL, 0, false },
    { "asp", RUBATO_F32, 1, 2, 0, NULL, RUBATO_ON_BAD_GRADIENT_REFUSE, false },
    { "ssp", RUBATO_F32, 2, 2, 0, NULL, 0, true },
    { "bsp", RUBATO_F64, 2, 3, 0, "assign", 0, false },
    { "bsp", RUBATO_F32, 1, 2, 0, NULL, RUBATO_ON_BAD_GRADIENT_REFUSE, false },
    { "sparse_ssp", RUBATO_F32, 1, 2, 0, NULL, 0, false },
    { "sparse_ssp", RUBATO_I64, 3, 4, 7, NULL, 0, true },
};

/* What the rows are: now, and as a Get sees them. */
typedef struct {
    const Scene *scene;
    int64_t now[N_KEYS][MOST_WIDTH], seen[N_KEYS][MOST_WIDTH];
} Story;

/* So many keys that a call is tried in one pass, one fewer, and one more. */
static size_t choose_count(uint64_t *random)
{
    static const size_t counts[] = { 1,
                                     JOINT_LEAST_KEYS - 1,
                                     JOINT_LEAST_KEYS,
                                     100,
                                     JOINT_MOST_KEYS,
                                     JOINT_MOST_KEYS + 1,
                                     JOINT_MOST_KEYS_IN_TURN,
                                     JOINT_MOST_KEYS_IN_TURN + 1,
                                     JOINT_MOST_KEYS_TO_READ,
                                     JOINT_MOST_KEYS_TO_READ + 1 };

    return counts[random_below(random, G_N_ELEMENTS(counts))];
}

/* In any order and repeated, ascending, or all of one part. */
static void choose_keys(uint64_t *random, const Scene *scene, RubatoKey *keys, size_t n)
{
    const uint32_t order = random_below(random, 3);
    const uint32_t reach = order == 2 ? 40 : N_KEYS;

    for (size_t i = 0; i < n; i++)
        keys[i] = scene->first_key + (order == 1 ? i * N_KEYS / n : random_below(random, reach));
}

static bool check_get(RubatoKVTable *table, const Story *story, const RubatoKey *keys, size_t n,
                      GError **error)
{
    const Scene *const scene = story->scene;
    static _Thread_local int64_t values[MOST * MOST_WIDTH];

    TRY(rubato_kv_table_get(table, keys, n, values, error));
    for (size_t i = 0; i < n * scene->width; i++) {
        const int64_t *const row = story->seen[keys[i / scene->width] - scene->first_key];

        REQUIRE(value_load(scene->dtype, values, i) == row[i % scene->width]);
    }
    return true;
}

static bool add(RubatoKVTable *table, Story *story, uint64_t *random, const RubatoKey *keys,
                size_t n, GError **error)
{
    const Scene *const scene = story->scene;
    static _Thread_local int64_t deltas[MOST * MOST_WIDTH];

    for (size_t i = 0; i < n * scene->width; i++) {
        int64_t *const value =
            &story->now[keys[i / scene->width] - scene->first_key][i % scene->width];
        const int64_t delta = (int64_t)random_below(random, 9) - 4;

        value_store(scene->dtype, deltas, i, delta);
        *value = scene->update != NULL ? delta : *value + delta;
    }
    return rubato_kv_table_add(table, keys, n, deltas, error);
}

static bool get_add_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    Story *const story = user_data;
    const Scene *const scene = story->scene;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", scene->dtype, error);
    static _Thread_local RubatoKey keys[MOST];
    uint64_t random = (uint64_t)(scene - scenes) + 1;

    TRY(table != NULL);
    for (int round = 0; round < N_ROUNDS; round++) {
        const size_t n = choose_count(&random);

        choose_keys(&random, scene, keys, n);
        TRY(check_get(table, story, keys, n, error));
        TRY(add(table, story, &random, keys, n, error));
        if (strcmp(scene->model, "bsp") != 0)
            memcpy(story->seen, story->now, sizeof story->now);
        TRY(check_get(table, story, keys, n, error));
        if (random_below(&random, 2) == 0)
            TRY(rubato_kv_table_clock(table, error));
        else
            continue;
        memcpy(story->seen, story->now, sizeof story->now);
    }
    return true;
}

static bool takes_iterations(const Scene *scene)
{
    return strcmp(scene->model, "sparse_ssp") == 0;
}

/* The keys of an iteration; each is drawn anew from its number. */
static bool choose_iteration(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    const Story *const story = user_data;
    static _Thread_local RubatoKey chosen[MOST];
    uint64_t random = iteration + 1;

    if (iteration == N_ROUNDS)
        return false;
    keys->n = choose_count(&random);
    keys->keys = chosen;
    choose_keys(&random, story->scene, chosen, keys->n);
    return true;
}

static bool iterate(RubatoWorker *worker, void *user_data, GError **error)
{
    Story *const story = user_data;
    const Scene *const scene = story->scene;
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, "t", scene->dtype, choose_iteration, story, error);
    static _Thread_local int64_t values[MOST * MOST_WIDTH], deltas[MOST * MOST_WIDTH];

    TRY(table != NULL);
    for (uint64_t round = 0; round < N_ROUNDS; round++) {
        RubatoIteration keys;

        REQUIRE(choose_iteration(round, &keys, story));
        TRY(rubato_sparse_kv_client_table_get(table, values, error));
        REQUIRE(rubato_sparse_kv_client_table_clock_value(table) == round);
        for (size_t i = 0; i < keys.n * scene->width; i++) {
            int64_t *const row = story->now[keys.keys[i / scene->width] - scene->first_key];

            REQUIRE(value_load(scene->dtype, values, i) == row[i % scene->width]);
        }
        for (size_t i = 0; i < keys.n * scene->width; i++) {
            value_store(scene->dtype, deltas, i, (int64_t)(round + i % 5));
            story->now[keys.keys[i / scene->width] - scene->first_key][i % scene->width] +=
                (int64_t)(round + i % 5);
        }
        TRY(rubato_sparse_kv_client_table_add(table, deltas, error));
    }
    return true;
}

START_TEST(all_parts_at_once_are_as_one_array)
{
    const Scene *const scene = &scenes[_i];
    RubatoEngine *const engine = engine_with_servers(scene->servers);
    Story *const story = g_new0(Story, 1);

    story->scene = scene;
    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = scene->dtype,
                                             .width = scene->width,
                                             .first_key = scene->first_key,
                                             .n_keys = N_KEYS,
                                             .model = scene->model,
                                             .staleness = strstr(scene->model, "ssp") != NULL,
                                             .speculation = takes_iterations(scene),
                                             .update = scene->update,
                                             .rule.on_bad_gradient = scene->on_bad_gradient });
    if (scene->moves)
        ck_assert(rubato_engine_move_part(engine, "t", 0, 1, NULL));
    run_ok(engine, 1, get_add_clock, story, "t");
    memcpy(story->seen, story->now, sizeof story->now);
    run_ok(engine, 1, get_add_clock, story, "t"); /* a second task finds the rows of the first */
    if (takes_iterations(scene))
        run_ok(engine, 1, iterate, story, "t");
    rubato_engine_free(engine);
    g_free(story);
}
END_TEST

/* ---- several workers, who read beside one another ---- */

enum { WORKERS = 2, CLOCKS = 300, KEYS = 100, ROWS = 50, STALENESS = 2 };

typedef struct {
    const char *model;
    uint32_t servers;
    bool is_crowded; /* more workers than processors */
} Company;

static const Company companies[] = {
    { "asp", 1, false }, { "asp", 3, false }, { "ssp", 1, false }, { "ssp", 2, false },
    { "ssp", 4, false }, { "bsp", 1, false }, { "bsp", 2, false }, { "bsp", 4, false },
    { "asp", 2, true },  { "ssp", 4, true },  { "bsp", 2, true },  { "bsp", 4, true },
};

static uint32_t count_workers(const Company *company)
{
    return company->is_crowded ? processors_count() + 2 : WORKERS;
}

/* Adds deltas to keys, at once or to a few before the rest, or the same to all rows at once, which
 * nobody may read meanwhile. */
static bool add_to_all(RubatoKVTable *table, int64_t clock, const RubatoKey *keys,
                       const int64_t *deltas, GError **error)
{
    const size_t n_few = clock % 3 == 0 ? (size_t)clock % 10 : 0;
    int64_t both[ROWS];

    if (clock % 8 != 5)
        return rubato_kv_table_add(table, keys, n_few, deltas, error) &&
               rubato_kv_table_add(table, keys + n_few, KEYS - n_few, deltas + n_few, error);
    for (int i = 0; i < ROWS; i++)
        both[i] = 2 * deltas[0];
    return rubato_kv_table_add_range(table, 0, ROWS, both, error);
}

/* Each adds rank + 1 to each key twice in each clock: so a row tells how many clocks of whom it has
 * seen, if it has seen the same of all. */
static bool read_beside_others(RubatoWorker *worker, void *user_data, GError **error)
{
    const Company *const company = user_data;
    const bool by_clock = strcmp(company->model, "bsp") == 0;
    const int64_t n_workers = count_workers(company);
    const int64_t each_clock = n_workers * (n_workers + 1);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    int64_t values[KEYS], deltas[KEYS];
    RubatoKey keys[KEYS];

    TRY(table != NULL);
    for (int64_t i = 0; i < KEYS; i++) {
        keys[i] = (RubatoKey)(i * 7 % ROWS);
        deltas[i] = rubato_worker_rank(worker) + 1;
    }
    for (int64_t clock = 0; clock < CLOCKS; clock++) {
        const int64_t sure = strcmp(company->model, "asp") == 0 ? 0
                             : by_clock                         ? clock
                                                                : MAX(0, clock - STALENESS);

        TRY(rubato_kv_table_get(table, keys, KEYS, values, error));
        for (int i = 0; i < KEYS; i++) {
            REQUIRE(values[i] >= sure * each_clock, "at clock %d", (int)clock);
            REQUIRE(values[i] >= clock * 2 * deltas[0]); /* its own */
            REQUIRE(!by_clock || values[i] == clock * each_clock, "at clock %d", (int)clock);
        }
        TRY(add_to_all(table, clock, keys, deltas, error));
        if (clock % 5 == 1) { /* of one server, which others may have taken with the rest */
            const RubatoKey one = keys[clock % KEYS];

            TRY(clock % 2 == 0 ? rubato_kv_table_get(table, &one, 1, values, error)
                               : rubato_kv_table_get_range(table, one, 1, values, error));
            REQUIRE(values[0] >= (clock + !by_clock) * 2 * deltas[0]);
        }
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

static bool same_keys(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    *keys = (RubatoIteration){ user_data, KEYS };
    return iteration < CLOCKS;
}

/* The same under a model that takes announcements: all iterations use the same keys, so no Get may
 * be further ahead than the staleness. */
static bool iterate_beside_others(RubatoWorker *worker, void *user_data, GError **error)
{
    const Company *const company = user_data;
    const int64_t n_workers = count_workers(company);
    const int64_t each_clock = n_workers * (n_workers + 1);
    int64_t values[KEYS], deltas[KEYS];
    RubatoKey keys[KEYS];

    for (int64_t i = 0; i < KEYS; i++) {
        keys[i] = (RubatoKey)(i * 7 % ROWS);
        deltas[i] = rubato_worker_rank(worker) + 1;
    }
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, "t", RUBATO_I64, same_keys, keys, error);

    TRY(table != NULL);
    for (int64_t clock = 0; clock < CLOCKS; clock++) {
        TRY(rubato_sparse_kv_client_table_get(table, values, error));
        for (int i = 0; i < KEYS; i++) {
            REQUIRE(values[i] >= (clock - STALENESS) * each_clock, "at clock %d", (int)clock);
            REQUIRE(values[i] >= clock * 2 * deltas[0]);
        }
        TRY(rubato_sparse_kv_client_table_add(table, deltas, error));
    }
    return true;
}

/* One token stands for all servers once a worker has made it so, until one of them is wanted. */
static bool add_by_one_token(const TableRoute *route, const JointAsk *asked, RubatoKVTable *table,
                             GError **error)
{
    JointAsk ask = *asked;
    int64_t value;

    if (!route->adds_jointly || route->deferred != NULL)
        return true;
    REQUIRE(!route->joint->add(route, &ask));
    ask.lends = true;
    REQUIRE(route->joint->add(route, &ask));
    ask.lends = false;
    REQUIRE(route->joint->add(route, &ask));
    REQUIRE(route->joint->add(route, &ask));
    TRY(rubato_kv_table_get(table, &ask.keys[ask.n_keys - 1], 1, &value, error)); /* reads beside */
    REQUIRE(value == 3 * ((const int64_t *)ask.deltas)[ask.n_keys - 1]);
    REQUIRE(route->joint->add(route, &ask));
    TRY(rubato_kv_table_get_range(table, ask.keys[ask.n_keys - 1], 1, &value, error));
    REQUIRE(value == 4 * ((const int64_t *)ask.deltas)[ask.n_keys - 1]);
    REQUIRE(!route->joint->add(route, &ask));
    return true;
}

/* Workers that share the company's servers run the function. */
static void run_in(Company company, RubatoTaskFunc function)
{
    RubatoEngine *const engine = engine_with_servers(company.servers);

    create_table(engine, &(RubatoTableSpec){
                             .name = "t",
                             .dtype = RUBATO_I64,
                             .n_keys = ROWS,
                             .model = company.model,
                             .staleness = strstr(company.model, "ssp") != NULL ? STALENESS : 0,
                             .speculation = strcmp(company.model, "sparse_ssp") == 0 });
    run_ok(engine, count_workers(&company), function, &company, "t");
    rubato_engine_free(engine);
}

START_TEST(workers_that_read_beside_one_another_see_what_they_have_to_see)
{
    run_in(companies[_i], read_beside_others);
}
END_TEST

static const Company iterating[] = {
    { "sparse_ssp", 1, false },
    { "sparse_ssp", 1, true },
    { "sparse_ssp", 2, false },
    { "sparse_ssp", 4, true },
};

START_TEST(iterations_that_read_beside_one_another_see_what_they_have_to_see)
{
    run_in(iterating[_i], iterate_beside_others);
}
END_TEST

/* Whether the rows are where the places say; nobody changes them now. */
static bool are_at(const RowPlaces *places, const RubatoKey *keys, const int64_t *values,
                   GError **error)
{
    for (size_t i = 0; i < JOINT_LEAST_KEYS; i++) {
        const unsigned char *const row = row_place(places, places->n, keys[i], places->stride);

        REQUIRE(*(const int64_t *)(const void *)row == values[i] && values[i] != 0);
    }
    return true;
}

/* What has not got all Adds that a Get has to see is not read. In a turn, and by a Get, a worker
 * learns where the rows are. */
static bool ask_too_early(RubatoWorker *worker, void *user_data, GError **error)
{
    const Company *const company = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const TableRoute *route;
    RubatoKey keys[JOINT_LEAST_KEYS];
    int64_t values[JOINT_LEAST_KEYS] = { 0 }, deltas[JOINT_LEAST_KEYS];
    RowPlaces places = { 0 };
    JointAsk ask = { .worker = rubato_worker_rank(worker),
                     .keys = keys,
                     .n_keys = JOINT_LEAST_KEYS,
                     .values = values,
                     .places = &places };
    uint64_t min_clock;

    TRY(table != NULL);
    route = ((const TableHandle *)table)->client->route;
    if (processors_count() < WORKERS) /* they share no servers, or take no turns */
        return true;
    REQUIRE(route->joint != NULL);
    REQUIRE(route->defers_jointly == (route->deferred != NULL && company->servers > 1));
    for (RubatoKey i = 0; i < JOINT_LEAST_KEYS; i++) { /* of all parts */
        keys[i] = i * ROWS / JOINT_LEAST_KEYS;
        deltas[i] = 1 + (int64_t)i;
    }
    ask.clock = strcmp(company->model, "ssp") == 0 ? STALENESS : 0;
    REQUIRE(route->joint->get(route, &ask, &min_clock));
    ask.clock++;
    REQUIRE(!route->joint->get(route, &ask, &min_clock));
    TRY(rubato_worker_barrier(worker, error));
    TRY(rubato_kv_table_add(table, keys, JOINT_LEAST_KEYS, deltas, error));
    TRY(rubato_kv_table_clock(table, error));
    TRY(rubato_worker_barrier(worker, error));
    ask.node_clock = 1;
    if (route->joint->take_turn == NULL) {
        REQUIRE(route->joint->get(route, &ask, &min_clock));
        REQUIRE(places.n == company->servers);
        return are_at(&places, keys, values, error);
    }
    if (ask.worker == 0) { /* the parts have its own Adds, and none of the other worker's */
        ask.values = NULL;
        REQUIRE(route->joint->take_turn(route, &ask, &min_clock));
        ask.values = values;
        REQUIRE(!route->joint->get(route, &ask, &min_clock));
    }
    TRY(rubato_worker_barrier(worker, error));
    if (ask.worker == 1)
        REQUIRE(route->joint->take_turn(route, &ask, &min_clock));
    TRY(rubato_worker_barrier(worker, error));
    REQUIRE(route->joint->get(route, &ask, &min_clock));
    REQUIRE(places.n == company->servers);
    return are_at(&places, keys, values, error);
}

/* The other worker waits meanwhile. */
static bool lend_tokens(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const bool is_second = rubato_worker_rank(worker) == 1;
    RubatoKey keys[JOINT_LEAST_KEYS];
    int64_t deltas[JOINT_LEAST_KEYS];
    const JointAsk ask = {
        .worker = 1, .keys = keys, .n_keys = JOINT_LEAST_KEYS, .deltas = deltas
    };

    (void)user_data;
    TRY(table != NULL);
    for (RubatoKey i = 0; i < JOINT_LEAST_KEYS; i++) {
        keys[i] = i * ROWS / JOINT_LEAST_KEYS;
        deltas[i] = 1 + (int64_t)i;
    }
    const TableRoute *const route = ((const TableHandle *)table)->client->route;

    TRY(!is_second || add_by_one_token(route, &ask, table, error));
    return rubato_worker_barrier(worker, error);
}

static const Company lenders[] = {
    { "asp", 2, false }, { "ssp", 4, true }, { "bsp", 2, false }, { "ssp", 1, false }
};

START_TEST(one_token_stands_for_all_servers)
{
    run_in(lenders[_i], lend_tokens);
}
END_TEST

/* Workers that have processors of their own begin their iterations at all servers at once, but with
 * more keys at one after the other. The other worker waits meanwhile. */
static bool begin_at_all(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { MOST_KEYS = JOINT_MOST_KEYS_TO_BEGIN };
    const Company *const company = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    int64_t values[MOST_KEYS + 1];
    RubatoKey keys[MOST_KEYS + 1];

    TRY(table != NULL);
    for (RubatoKey i = 0; i <= MOST_KEYS; i++)
        keys[i] = i * 7 % ROWS;
    if (rubato_worker_rank(worker) == 1 && processors_count() >= WORKERS) {
        TableClient *const client = ((TableHandle *)table)->client;

        REQUIRE(client->route->joint != NULL && client->route->joint->begin != NULL);
        REQUIRE(table_client_get_jointly(client, keys, MOST_KEYS, values));
        REQUIRE(table_client_get_jointly(client, keys, MOST_KEYS + 1, values) ==
                (company->servers == 1));
    }
    return rubato_worker_barrier(worker, error);
}

START_TEST(iterations_of_few_keys_begin_at_all_servers_at_once)
{
    run_in((Company){ "sparse_ssp", 1 + (uint32_t)_i, false }, begin_at_all);
}
END_TEST

static const Company asked[] = {
    { "ssp", 1, false }, { "ssp", 2, false }, { "bsp", 1, false }, { "bsp", 2, false }
};

START_TEST(rows_that_lack_adds_are_not_read_beside_others)
{
    run_in(asked[_i], ask_too_early);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("joint");
    TCase *tcase = tcase_create("engine");

    tcase_add_loop_test(tcase, all_parts_at_once_are_as_one_array, 0, G_N_ELEMENTS(scenes));
    tcase_add_loop_test(tcase, workers_that_read_beside_one_another_see_what_they_have_to_see, 0,
                        G_N_ELEMENTS(companies));
    tcase_add_loop_test(tcase, iterations_that_read_beside_one_another_see_what_they_have_to_see, 0,
                        G_N_ELEMENTS(iterating));
    tcase_add_loop_test(tcase, rows_that_lack_adds_are_not_read_beside_others, 0,
                        G_N_ELEMENTS(asked));
    tcase_add_loop_test(tcase, iterations_of_few_keys_begin_at_all_servers_at_once, 0, 2);
    tcase_add_loop_test(tcase, one_token_stands_for_all_servers, 0, G_N_ELEMENTS(lenders));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
