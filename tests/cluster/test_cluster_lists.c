/* Lists that servers send without a model: the keys of a table's rows, over several processes. */
#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

static const ClusterShape TWO_BY_TWO = { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } } };
static const ClusterShape THREE = { .n_nodes = 3, .nodes = { { 1, 0 }, { 1, 2 }, { 0, 2 } } };

enum { N_LISTED = 50000 }; /* more than a message holds */

/* A Get of keys that another node's server does not have is refused. */
static bool expect_refused(RubatoEngine *engine, RubatoKey first, GError **error)
{
    for (uint32_t server = 0; server < engine->office.n_servers; server++) {
        RubatoKey keys[2];
        Call call;
        Message message = {
            .kind = MESSAGE_LIST_KEYS,
            .table = engine_find_table(engine, "rows", NULL)->id,
            .part = server,
            .server = server,
            .node = engine->self,
            .call = &call,
            .end = message_end_call,
            .request = { .worker = UINT32_MAX, .keys = { .first = first, .n = 2 }, .output = keys },
            .row_bytes = sizeof(RubatoKey),
        };

        if (post_office_is_local(&engine->office, server))
            continue;
        call_begin(&call, NULL);
        call_add_parts(&call, 1);
        post_office_ask(&engine->office, &message);
        post_office_flush(&engine->office);
        call_sent(&call);
        post_office_wait(&engine->office, &call, -1);
        EXPECT(call.status == CALL_REFUSED, "server %u gave keys from %" G_GUINT64_FORMAT, server,
               first);
    }
    return true;
}

/* Each node adds to rows of its own and to some of all; then each sees the keys of all. */
static bool play_list(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows" };
    g_autofree RubatoKey *own = g_new(RubatoKey, N_LISTED);
    g_autofree float *ones = g_new0(float, N_LISTED);
    g_autofree RubatoKey *keys = NULL;
    size_t n;

    (void)data;
    for (uint64_t i = 0; i < N_LISTED; i++)
        own[i] = i < 10 ? i : i * engine->n_nodes + engine->self;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !rubato_engine_add(engine, "rows", own, N_LISTED, ones, error) ||
        !rubato_engine_barrier(engine, error) ||
        !rubato_engine_list_keys(engine, "rows", &keys, &n, error))
        return false;
    EXPECT(n == 10 + (N_LISTED - 10) * (size_t)engine->n_nodes, "%zu keys", n);
    for (size_t i = 0; i < n; i++)
        EXPECT(keys[i] == (i < 10 ? i : i + 10 * (engine->n_nodes - 1)),
               "key %zu is %" G_GUINT64_FORMAT, i, keys[i]);
    return expect_refused(engine, UINT64_MAX - 2, error) && expect_refused(engine, n, error);
}

START_TEST(keys_of_all_nodes_are_listed)
{
    ClusterRun *run = cluster_run_new(_i == 0 ? &TWO_BY_TWO : &THREE);

    cluster_start(run, play_list, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lists of several processes");
    TCase *keys = cluster_add_case(suite, "keys");

    tcase_add_loop_test(keys, keys_of_all_nodes_are_listed, 0, 2);
    return run_suite(suite);
}
