/* A run that works until its case lets it end. */
#include "tests/support/cluster/endless_run.h"

#include <poll.h>
#include <unistd.h>

#include "engine/engine_private.h"

enum { STOP_KEY = 9, N_KEYS = 10 };

static int gate[2]; /* the task goes on until something can be read here */

void endless_run_open(void)
{
    ck_assert_int_eq(pipe(gate), 0);
}

void endless_run_end(void)
{
    ck_assert_int_eq(write(gate[1], "x", 1), 1);
}

static bool gate_is_open(void)
{
    struct pollfd polled = { .fd = gate[0], .events = POLLIN };

    return poll(&polled, 1, 0) == 1;
}

/* Under BSP all see the stop at the same clock. Each adds 1 to every key but that in each clock. */
static bool work_until_stopped(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    double rows[N_KEYS], deltas[N_KEYS]; /* exact for as many clocks as there are */
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F64, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint32_t clock = 0;; clock++) {
        if (!rubato_kv_table_get_range(table, 0, N_KEYS, rows, error))
            return false;
        for (int i = 0; i < STOP_KEY; i++)
            EXPECT(rows[i] == (double)clock * n_workers, "key %d is %g at clock %u", i, rows[i],
                   clock);
        if (rows[STOP_KEY] > 0)
            return true;
        if (clock == 50)
            cluster_say("busy");
        for (int i = 0; i < N_KEYS; i++)
            deltas[i] = i == STOP_KEY ? 0 : 1;
        if (rubato_worker_rank(worker) == 0 && gate_is_open())
            deltas[STOP_KEY] = 1;
        if (!rubato_kv_table_add_range(table, 0, N_KEYS, deltas, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    }
}

bool endless_run_play(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_F64, .n_keys = N_KEYS, .model = "bsp"
    };
    const char *const tables[] = { "rows", NULL };

    (void)data;
    cluster_say("endpoint=%s", network_endpoint(engine->network, 0));
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "work", work_until_stopped, NULL, tables, error);
}
