/* What the nodes play, what goes wrong meanwhile, and who judges it: see history_schedule.h.
 *
 * Threads: the case's; inside a node its workers. */
#include "tests/support/cluster/history_schedule.h"

#include <check.h>
#include <glib/gstdio.h>
#include <rubato/handler.h>
#include <rubato/plugin.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "engine/faults_on_demand.h"
#include "io/history/history.h"
#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/history_lists.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/fitting_spec.h"

enum {
    N_KEYS = 12,
    MOST_KEYS_OF_CALL = 4,
    WIDTH = 2,
    STALENESS = 1,
    SPECULATION = 1,
    STANDS_STILL_MS = 60,
    N_PARTS = 5,
    LOSSES_NODES = 4,
    LOSSES_PARTS = 8,   /* part p is on server p mod 4, and its first replica on the next one */
    LOSSES_WORKING = 2, /* nodes with workers; the others are lost */
    QUICK_CLOCKS = 100,
    LOSSES_MADE = 2, /* replicas of a table that each of two servers makes after the first loss */
};

typedef struct {
    const char *model;
    uint32_t seed, n_clocks;
    uint32_t replicas; /* 0: no node is lost */
    bool replaces;     /* lost nodes have workers, which are replaced */
} Plan;

/* ---- in a node ---- */

typedef struct {
    RubatoWorker *worker;
    GRand *random;
    RubatoKey keys[MOST_KEYS_OF_CALL];
    size_t n_keys;
    int64_t deltas[MOST_KEYS_OF_CALL * WIDTH], rows[MOST_KEYS_OF_CALL * WIDTH];
} Player;

static uint32_t seed_of(const Player *player, const Plan *plan)
{
    return plan->seed * 16 + rubato_worker_rank(player->worker);
}

/* A part of the plan, not a wait for something: the run has to end well however long it takes. */
static void let_pass(long ms)
{
    struct timespec left = { .tv_nsec = ms * 1000000 };

    while (nanosleep(&left, &left) != 0)
        ;
}

/* Keys may repeat. */
static void draw_keys(Player *player)
{
    player->n_keys = (size_t)g_rand_int_range(player->random, 1, MOST_KEYS_OF_CALL + 1);
    for (size_t i = 0; i < player->n_keys; i++)
        player->keys[i] = (RubatoKey)g_rand_int_range(player->random, 0, N_KEYS);
    for (size_t i = 0; i < G_N_ELEMENTS(player->deltas); i++)
        player->deltas[i] = g_rand_int_range(player->random, -3, 1000);
}

/* Makes other values of the rows, which depend on what they were; then it fails, if its argument
 * says so. */
static bool run_stir(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    const bool fails = rubato_read_u32(arguments) != 0;
    RubatoPartRows rows;

    (void)result;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            int64_t *const row = rubato_part_rows_row(&rows, i);

            for (int column = 0; column < WIDTH; column++)
                row[column] = row[column] * 3 % 1000 + (int64_t)rubato_part_rows_key(&rows, i);
        }
    if (fails)
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it was to fail");
    return !fails;
}

void history_schedule_register(void)
{
    static const RubatoHandlerOps stir = { .name = "stir",
                                           .access = RUBATO_ACCESS_WRITES,
                                           .run = run_stir };

    if (!rubato_register_handler(&stir, NULL))
        abort();
}

/* A failure is told at once, or by a clock. */
static bool forgive(bool ok, GError *found, GError **error)
{
    if (ok)
        return true;
    if (g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_HANDLER)) {
        g_error_free(found);
        return true;
    }
    g_propagate_error(error, found);
    return false;
}

/* On some keys, or on all rows if the model takes such calls. */
static bool play_stir(Player *player, const Plan *plan, GError **error)
{
    const uint32_t fails = g_rand_int_range(player->random, 0, 6) == 0;
    const bool is_whole = g_rand_int_range(player->random, 0, 3) == 0 &&
                          !rubato_model_traits(plan->model)->takes_announcements;
    const RubatoHandlerCall call = { .table = "sums",
                                     .handler = "stir",
                                     .arguments = &fails,
                                     .n_argument_bytes = sizeof fails,
                                     .scope = is_whole ? RUBATO_SCOPE_TABLE : RUBATO_SCOPE_KEYS,
                                     .keys = player->keys,
                                     .n_keys = player->n_keys };
    GError *found = NULL;
    const bool ok = rubato_worker_call_handler(player->worker, &call, NULL, &found);

    return forgive(ok, found, error);
}

static bool clock_on(RubatoKVTable *table, GError **error)
{
    for (GError *found = NULL; !rubato_kv_table_clock(table, &found); found = NULL)
        if (!forgive(false, found, error)) /* it tells a failure once */
            return false;
    return true;
}

static bool wait_for(Player *player, RubatoTicket ticket, GError **error)
{
    return ticket != 0 && rubato_worker_wait(player->worker, ticket, error);
}

/* One call of any kind. */
static bool play_call(Player *player, const Plan *plan, RubatoKVTable *table, GError **error)
{
    draw_keys(player);
    switch (g_rand_int_range(player->random, 0, 7)) {
    case 0:
        return rubato_kv_table_get(table, player->keys, player->n_keys, player->rows, error);
    case 1:
        return rubato_kv_table_get_range(table, 2, MOST_KEYS_OF_CALL, player->rows, error);
    case 2:
        return rubato_kv_table_add_get(table, player->keys, player->n_keys, player->deltas,
                                       player->rows, error);
    case 3:
        return wait_for(player,
                        rubato_kv_table_get_async(table, player->keys, player->n_keys, player->rows,
                                                  NULL, error),
                        error);
    case 4:
        return rubato_kv_table_add_async(table, player->keys, player->n_keys, player->deltas, NULL,
                                         error) != 0;
    case 5:
        return play_stir(player, plan, error);
    default:
        return rubato_kv_table_add(table, player->keys, player->n_keys, player->deltas, error);
    }
}

/* Set by a signal: all that is to go wrong has gone wrong. */
static atomic_bool losses_are_over;

static void end_losses(int number)
{
    (void)number;
    atomic_store(&losses_are_over, true);
}

static bool has_lists(const Plan *plan)
{
    return !rubato_model_traits(plan->model)->takes_announcements;
}

/* A worker in the place of this one does the same. */
static void seed_clock(const Player *player, const Plan *plan, uint64_t clock)
{
    if (plan->replaces)
        g_rand_set_seed(player->random, seed_of(player, plan) * 100003 + (uint32_t)clock);
}

/* With losses it plays until they are over, and some clocks more. The history grows with each
 * clock, so it takes its time if that lasts for long. */
static bool play_kv(Player *player, const Plan *plan, GError **error)
{
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(player->worker, "sums", RUBATO_I64, error);
    g_autoptr(RubatoRaggedTable) lists =
        has_lists(plan) ? history_lists_open(player->worker, plan->seed, error) : NULL;
    const uint64_t first = rubato_worker_first_clock(player->worker);
    uint32_t left = plan->n_clocks;

    if (table == NULL || (lists == NULL && has_lists(plan)))
        return false;
    for (uint64_t clock = first; left > 0; clock++) {
        const bool is_between = plan->replicas > 0 && !atomic_load(&losses_are_over);

        seed_clock(player, plan, clock);
        for (int i = 0; i < 4; i++)
            if (!play_call(player, plan, table, error))
                return false;
        if (lists != NULL &&
            (!history_lists_play(player->worker, lists, player->random,
                                 !rubato_model_traits(plan->model)->applies_by_clock, error) ||
             !rubato_ragged_table_clock(lists, error)))
            return false;
        if (!clock_on(table, error))
            return false;
        if (clock == first + 1)
            cluster_say("is busy");
        if (!is_between)
            left--;
        else if (clock > QUICK_CLOCKS)
            let_pass(1);
    }
    /* the calls of the last clock have run when the second one of these ends */
    return clock_on(table, error) && clock_on(table, error);
}

/* How far a worker has come with what it announces. */
typedef struct {
    Player *player;
    const Plan *plan;
    uint32_t left;
} Announcing;

static bool announce_next(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    Announcing *const announcing = user_data;

    if (announcing->left == 0)
        return false;
    if (announcing->plan->replicas == 0 || atomic_load(&losses_are_over))
        announcing->left--;
    seed_clock(announcing->player, announcing->plan, iteration);
    draw_keys(announcing->player);
    *keys = (RubatoIteration){ announcing->player->keys, announcing->player->n_keys };
    return true;
}

/* It announces the keys of its iterations. */
static bool play_sparse(Player *player, const Plan *plan, GError **error)
{
    Announcing announcing = { player, plan, plan->n_clocks };
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        player->worker, "sums", RUBATO_I64, announce_next, &announcing, error);
    const uint64_t first = rubato_worker_first_clock(player->worker);
    RubatoIteration next;

    if (table == NULL)
        return false;
    for (uint32_t i = 0; rubato_sparse_kv_client_table_next(table, &next); i++) {
        if (!rubato_sparse_kv_client_table_get(table, player->rows, error))
            return false;
        seed_clock(player, plan, first + i);
        if (plan->replaces) /* else the deltas are those that were drawn last */
            draw_keys(player);
        if (!rubato_sparse_kv_client_table_add(table, player->deltas, error))
            return false;
        if (i == 1)
            cluster_say("is busy");
        if (i > QUICK_CLOCKS && announcing.left == plan->n_clocks)
            let_pass(1);
    }
    return true;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const Plan *plan = user_data;
    const bool is_sparse =
        rubato_model_traits(plan->model)->takes_announcements && rubato_worker_rank(worker) != 0;
    Player player = { .worker = worker };
    player.random = g_rand_new_with_seed(seed_of(&player, plan));
    const bool ok = is_sparse ? play_sparse(&player, plan, error) : play_kv(&player, plan, error);

    g_rand_free(player.random);
    return ok;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const Plan *plan = data;
    const RubatoTableSpec spec =
        fitting_spec((RubatoTableSpec){ .name = "sums",
                                        .dtype = RUBATO_I64,
                                        .width = WIDTH,
                                        .n_keys = N_KEYS,
                                        .parts = plan->replicas > 0 ? LOSSES_PARTS : N_PARTS,
                                        .replicas = plan->replicas,
                                        .model = plan->model,
                                        .staleness = STALENESS,
                                        .speculation = SPECULATION });
    const RubatoTableSpec lists = history_lists_spec(&spec, plan->seed);
    const char *const tables[] = { "sums", has_lists(plan) ? "lists" : NULL, NULL };

    signal(SIGUSR1, end_losses);
    if (!rubato_engine_create_table(engine, &spec, error) ||
        (has_lists(plan) && (!rubato_engine_create_table(engine, &lists, error) ||
                             !history_lists_begin(engine, error))))
        return false;
    cluster_say("begins");
    return rubato_engine_run(
        engine,
        &(RubatoTask){ .name = "sum",
                       .run = work,
                       .user_data = (void *)(uintptr_t)plan,
                       .tables = tables,
                       .on_loss = plan->replaces ? RUBATO_ON_LOSS_REPLACE : RUBATO_ON_LOSS_FAIL },
        error);
}

/* ---- the case ---- */

static void set_environment(GRand *random, const char *folder, uint32_t seed)
{
    g_autofree char *faults =
        g_strdup_printf("drop=0.00%d,double=0.%d,reorder=0.0%d,%scut=%dms/900ms,seed=%u",
                        g_rand_int_range(random, 0, 10), g_rand_int_range(random, 0, 4),
                        g_rand_int_range(random, 0, 10), g_rand_boolean(random) ? "delay=1ms," : "",
                        g_rand_int_range(random, 5, 30), seed);

    g_setenv(FAULTS_VARIABLE, faults, TRUE);
    g_setenv(HISTORY_VARIABLE, folder, TRUE);
}

static void stop_nodes(ClusterRun *run, GRand *random, uint32_t n_nodes)
{
    for (int i = 0; i < 2; i++) {
        const uint32_t node = (uint32_t)g_rand_int_range(random, 0, (gint32)n_nodes);

        if (run->processes[node].ended) /* there is no such process any more */
            continue;
        cluster_signal(run, node, SIGSTOP);
        let_pass(g_rand_int_range(random, 5, STANDS_STILL_MS));
        cluster_signal(run, node, SIGCONT);
    }
}

static void judge(const Plan *plan, const char *folder)
{
    const char *argv[] = { TEST_BIN_DIR "/rubato", "history", "check", folder, NULL };
    g_autofree char *said = NULL;
    g_autofree char *complained = NULL;
    int status;

    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &said,
                           &complained, &status, NULL));
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
                      strstr(said, "; 0 not compared\n") != NULL &&
                      strstr(said, ": 0 Gets, ") == NULL && strstr(said, " 0 Adds, ") == NULL &&
                      strstr(said, "not known") == NULL &&
                      g_str_has_suffix(said, "\nnothing wrong\n"),
                  "model %s, seed %u, history in %s: %.2000s%.1000s", plan->model, plan->seed,
                  folder, said, complained);
}

static ClusterShape draw_shape(GRand *random, uint32_t n_nodes)
{
    static const char *const wires[] = { "shm", "tcp" };
    ClusterShape shape = { .n_nodes = n_nodes,
                           .over = wires[g_rand_int_range(random, 0, G_N_ELEMENTS(wires))],
                           .encrypts = g_rand_int_range(random, 0, 4) == 0 };

    for (uint32_t i = 0; i < n_nodes; i++)
        shape.nodes[i] = (ClusterNodeShape){ 1, (uint32_t)g_rand_int_range(random, 1, 3) };
    return shape;
}

void history_schedule_play(const char *model, uint32_t seed, uint32_t n_clocks)
{
    const Plan plan = { .model = model, .seed = seed, .n_clocks = n_clocks };
    GRand *random = g_rand_new_with_seed(seed);
    g_autofree char *folder = g_dir_make_tmp("history-XXXXXX", NULL);
    const uint32_t n_nodes = (uint32_t)g_rand_int_range(random, 2, 4);
    const ClusterShape shape = draw_shape(random, n_nodes);

    ck_assert_ptr_nonnull(folder);
    set_environment(random, folder, seed);
    ClusterRun *run = cluster_run_new(&shape);
    cluster_start(run, play, &plan);
    for (uint32_t i = 0; i < n_nodes; i++)
        cluster_wait_for(run, i, "begins");
    stop_nodes(run, random, n_nodes);
    cluster_expect_success(run);
    cluster_run_free(run);
    judge(&plan, folder);
    remove_folder(folder);
    g_rand_free(random);
}

/* ---- losses ---- */

/* A run with losses. The processes of nodes 2 and 3 have no workers; one or both are lost. */
typedef struct {
    ClusterRun *run;
    GRand *random;
    const Plan *plan;
    uint32_t first, second;           /* the node that is lost first, and the other one */
    bool is_silent;                   /* they stand still; otherwise they are killed */
    uint32_t processes[LOSSES_NODES]; /* that have the nodes' places */
} Losses;

static void lose(const Losses *losses, uint32_t node)
{
    ClusterRun *const run = losses->run;
    const uint32_t process = losses->processes[node];

    g_string_truncate(run->processes[0].text, 0);
    cluster_signal(run, process, losses->is_silent ? SIGSTOP : SIGKILL);
    cluster_wait_for(run, 0, " was lost: ");
    if (losses->is_silent) { /* it learns that the others have gone on */
        cluster_signal(run, process, SIGCONT);
        cluster_expect_end(run, process, CLUSTER_FAILED);
    }
}

/* Before the next loss each part has its replica again: those of which the lost node was the
 * primary, and those whose replica it had. */
static void await_replicas(const Losses *losses)
{
    for (uint32_t i = 1; i < LOSSES_NODES; i += 2) { /* the servers behind and in front of it */
        const uint32_t server = (losses->first + i) % LOSSES_NODES;
        g_autofree char *text =
            g_strdup_printf("server %u has made %d replicas of its parts on other nodes", server,
                            has_lists(losses->plan) ? 2 * LOSSES_MADE : LOSSES_MADE);

        cluster_wait_for(losses->run, server, text);
    }
}

/* It need not have joined when the run ends, if it has no workers. */
static void start_another(Losses *losses, uint32_t node)
{
    g_setenv("RUBATO_JOIN", "1", TRUE);
    losses->processes[node] =
        cluster_start_other(losses->run, CLUSTER_IDS[node], losses->run->path, play, losses->plan);
    g_unsetenv("RUBATO_JOIN");
    if (losses->plan->replaces)
        cluster_wait_for(losses->run, losses->processes[node],
                         "has taken over the workers of a lost process");
}

static void pass_some_time(const Losses *losses)
{
    let_pass(g_rand_int_range(losses->random, 0, 2 * STANDS_STILL_MS));
}

/* Then another process takes its place: always, if it had workers. */
static void lose_and_replace(Losses *losses, uint32_t node)
{
    lose(losses, node);
    if (losses->plan->replicas == 1 && node == losses->first)
        await_replicas(losses);
    if (losses->plan->replaces || g_rand_boolean(losses->random))
        start_another(losses, node);
    pass_some_time(losses);
}

static void play_losses(Losses *losses)
{
    GRand *const random = losses->random;
    const uint32_t n_working = losses->plan->replaces ? LOSSES_NODES : LOSSES_WORKING;

    for (uint32_t i = 0; i < n_working; i++)
        cluster_wait_for(losses->run, i, "is busy");
    let_pass(g_rand_int_range(random, 0, STANDS_STILL_MS));
    lose_and_replace(losses, losses->first);
    /* of two replicas only one may be left until others are made, so no other node is lost */
    if (losses->plan->replicas == 1 && g_rand_boolean(random))
        lose_and_replace(losses, losses->second);
    for (uint32_t i = 0; i < n_working; i++)
        cluster_signal(losses->run, losses->processes[i], SIGUSR1);
    stop_nodes(losses->run, random, LOSSES_WORKING);
}

static void play_lossy(const Plan *plan, GRand *random, HistoryLosses which)
{
    g_autofree char *folder = g_dir_make_tmp("history-XXXXXX", NULL);
    ClusterShape shape = draw_shape(random, LOSSES_NODES);
    Losses losses = { .random = random, .plan = plan };

    losses.is_silent = which == HISTORY_LOSSES_ANY && g_rand_int_range(random, 0, 8) == 0;
    losses.first = LOSSES_WORKING + (uint32_t)g_rand_int_range(random, 0, 2);
    losses.second = LOSSES_NODES + LOSSES_WORKING - 1 - losses.first;
    shape.timeout_ms = losses.is_silent ? cluster_short_timeout_ms() : 0;
    shape.catches_up = plan->replaces;
    for (uint32_t i = 0; i < LOSSES_NODES; i++)
        losses.processes[i] = i;
    for (uint32_t i = LOSSES_WORKING; i < LOSSES_NODES && !plan->replaces; i++)
        shape.nodes[i].workers = 0;
    ck_assert_ptr_nonnull(folder);
    set_environment(random, folder, plan->seed);
    losses.run = cluster_run_new(&shape);
    cluster_start(losses.run, play, plan);
    play_losses(&losses);
    for (uint32_t i = 0; i < (plan->replaces ? LOSSES_NODES : LOSSES_WORKING); i++)
        cluster_expect_end(losses.run, losses.processes[i], 0);
    cluster_run_free(losses.run);
    judge(plan, folder);
    remove_folder(folder);
}

static void play_plan(Plan plan, HistoryLosses which)
{
    GRand *random = g_rand_new_with_seed(plan.seed);

    plan.replicas = (uint32_t)g_rand_int_range(random, 1, 3);
    play_lossy(&plan, random, which);
    g_rand_free(random);
}

void history_schedule_play_losses(const char *model, uint32_t seed, uint32_t n_clocks,
                                  HistoryLosses which)
{
    play_plan((Plan){ .model = model, .seed = seed, .n_clocks = n_clocks }, which);
}

void history_schedule_play_replaced(const char *model, uint32_t seed, uint32_t n_clocks,
                                    HistoryLosses which)
{
    play_plan((Plan){ .model = model, .seed = seed, .n_clocks = n_clocks, .replaces = true },
              which);
}
