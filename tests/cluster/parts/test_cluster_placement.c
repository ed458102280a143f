/* Tables on two nodes whose servers have limits: parts lie where the plan says, on all nodes alike;
 * what fits nowhere is refused when it is made, and a part moves only to a server with room. What
 * tables took is written for later plans. */
#include <glib/gstdio.h>
#include <string.h>

#include "engine/placement/measured_needs.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

enum { KIB_KEYS = 256 }; /* keys of a row of one float, in a KiB */

static bool create(RubatoEngine *engine, const char *name, uint64_t kib, uint32_t parts,
                   bool no_split, GError **error)
{
    return rubato_engine_create_table(
        engine,
        &(RubatoTableSpec){
            .name = name, .n_keys = kib * KIB_KEYS, .parts = parts, .no_split = no_split },
        error);
}

static bool is_refused(bool done, GError *error, const char *text)
{
    return !done && g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID) &&
           strstr(error->message, text) != NULL;
}

#define EXPECT_REFUSED(call, text)                                        \
    do {                                                                  \
        g_autoptr(GError) refusal = NULL;                                 \
        const bool is_done = (call);                                      \
        EXPECT(is_refused(is_done, refusal, text), "%s",                  \
               refusal == NULL ? "it is not refused" : refusal->message); \
    } while (0)

/* How many KiB of a table lie on this node. */
static bool expect_kib(RubatoEngine *engine, const char *name, uint64_t first, uint64_t second,
                       GError **error)
{
    const uint64_t expected = rubato_engine_node(engine) == CLUSTER_IDS[0] ? first : second;
    RubatoTableStats stats;

    if (!rubato_engine_table_stats(engine, name, &stats, error))
        return false;
    EXPECT(stats.n_rows == expected * KIB_KEYS, "%" G_GUINT64_FORMAT " rows of table %s",
           stats.n_rows, name);
    return true;
}

/* Each key is where both nodes look for it. */
static bool expect_rows(RubatoEngine *engine, const char *name, GError **error)
{
    const RubatoKey keys[] = { 0, 100 * KIB_KEYS, 500 * KIB_KEYS };
    const float ones[] = { 1, 1, 1 };
    float seen[3];

    if (!rubato_engine_add(engine, name, keys, 3, ones, error) ||
        !rubato_engine_barrier(engine, error) ||
        !rubato_engine_get(engine, name, keys, 3, seen, error))
        return false;
    for (size_t i = 0; i < 3; i++)
        EXPECT(seen[i] > 1.5F && seen[i] < 2.5F, "key %zu of %s has %g", i, name, (double)seen[i]);
    return true;
}

/* Three servers of 1 MiB each: 0 and 1 on the first node, 2 on the second. */
static bool play_limits(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec users = { .name = "users", .storage = "hash" };
    RubatoTableSpec many = { .name = "many",
                             .storage = "hash",
                             .needs = { .memory_bytes = 3000, .queries = 400 } };

    (void)data;
    if (!create(engine, "a", 768, 3, false, error) ||  /* 256 each */
        !create(engine, "b", 512, 0, true, error) ||   /* 0: 768 */
        !create(engine, "c", 1024, 2, false, error) || /* 1, 2: 768; 0 has no room */
        !expect_kib(engine, "a", 512, 256, error) || !expect_kib(engine, "b", 512, 0, error) ||
        !expect_kib(engine, "c", 512, 512, error) || !expect_rows(engine, "c", error))
        return false;
    EXPECT_REFUSED(create(engine, "d", 600, 2, false, &refusal), "table d: part 0 of 2 fits on no");
    EXPECT_REFUSED(create(engine, "d", 3000, 0, true, &refusal), "as no_split wants it");
    EXPECT_REFUSED(rubato_engine_move_part(engine, "c", 0, 2, &refusal),
                   "cannot move to server 2: the part needs memory 0.5 MiB; the server has memory "
                   "0.8 MiB of 1.0 MiB (75 %)");
    EXPECT_REFUSED(rubato_engine_create_table(engine, &users, &refusal),
                   "limits the memory of server 0");
    EXPECT_REFUSED(rubato_engine_create_table(engine, &many, &refusal), "queries: it needs 134");
    many.needs.queries = 300;
    if (!rubato_engine_create_table(engine, &many, error) ||
        !rubato_engine_drop_table(engine, "many", error) ||
        !rubato_engine_drop_table(engine, "b", error) ||
        !create(engine, "d", 600, 2, false, error) || /* both parts on server 0 */
        !expect_kib(engine, "d", 600, 0, error) || !expect_rows(engine, "d", error))
        return false;
    return rubato_engine_move_part(engine, "a", 0, 1, error) && /* which is full then */
           expect_rows(engine, "a", error);
}

START_TEST(parts_lie_within_the_limits_of_servers_and_what_fits_nowhere_is_refused)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2,
        .nodes = { { 2, 0 }, { 1, 0 } },
        .lines = "placement = \"balance\"; limits = { memory_mib = 1; queries = 100; };\n" });

    cluster_start(run, play_limits, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* Without limits a table's parts stay together, too. */
static bool play_whole(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    if (!create(engine, "whole", 600, 4, true, error) ||
        !expect_kib(engine, "whole", 600, 0, error) || !expect_rows(engine, "whole", error))
        return false;
    EXPECT_REFUSED(rubato_engine_move_part(engine, "whole", 0, 1, &refusal),
                   "no_split keeps its 4 parts on one server");
    return true;
}

START_TEST(the_parts_of_a_table_that_is_not_split_stay_together)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 0 }, { 1, 0 } } });

    cluster_start(run, play_whole, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

enum { N_ROUNDS = 50, N_MEASURED = 300 };

/* The second node, which has no server, asks for keys of a table that is dropped, and both nodes
 * for one of a table that stays. */
static bool play_measured(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "users", .storage = "hash", .width = 2, .parts = 2 };
    const RubatoTableSpec kept = { .name = "kept", .n_keys = 1000 };
    const float *const zeros = data;
    float rows[2 * N_MEASURED];
    RubatoKey keys[N_MEASURED];

    for (size_t i = 0; i < N_MEASURED; i++)
        keys[i] = i;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !rubato_engine_create_table(engine, &kept, error))
        return false;
    for (size_t i = 0; i < N_ROUNDS && rubato_engine_node(engine) != CLUSTER_IDS[0]; i++)
        if (!rubato_engine_add(engine, "users", keys, N_MEASURED, zeros, error) ||
            !rubato_engine_get(engine, "users", keys, N_MEASURED, rows, error))
            return false;
    return rubato_engine_barrier(engine, error) &&
           rubato_engine_get(engine, "kept", keys, 1, rows, error) &&
           rubato_engine_drop_table(engine, "users", error);
}

static void remove_measured(const char *folder)
{
    for (uint32_t i = 0; i < 2; i++) {
        g_autofree char *name = g_strdup_printf("needs-%u.tsv", CLUSTER_IDS[i]);
        g_autofree char *path = g_build_filename(folder, name, NULL);

        ck_assert_int_eq(g_unlink(path), 0);
    }
    ck_assert_int_eq(g_rmdir(folder), 0);
}

START_TEST(nodes_write_what_their_tables_took)
{
    static const float zeros[2 * N_MEASURED];
    g_autofree char *folder = g_dir_make_tmp("measured-XXXXXX", NULL);
    RubatoTableSpec users = { .name = "users", .storage = "hash" };
    RubatoTableSpec kept = { .name = "kept", .storage = "hash" };
    g_autoptr(GError) error = NULL;

    g_setenv(NEEDS_VARIABLE, folder, TRUE);
    ClusterRun *const run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 2, 0 }, { 0, 1 } } });

    cluster_start(run, play_measured, zeros);
    cluster_expect_success(run);
    cluster_run_free(run);
    g_autoptr(MeasuredNeeds) needs = measured_needs_read(folder, &error);

    ck_assert_msg(needs != NULL, "%s", error == NULL ? "" : error->message);
    ck_assert(measured_needs_fill(needs, &users));
    ck_assert(measured_needs_fill(needs, &kept));
    /* 300 rows of two floats with their keys, in two parts of about 150 */
    ck_assert_uint_ge(users.needs.memory_bytes, N_MEASURED * (8 + 8));
    ck_assert_uint_le(users.needs.memory_bytes, 1 << 20);
    /* rounded up, so each request of this node and the other one counts */
    ck_assert_uint_gt(users.needs.queries, 0);
    /* a key and a row go in an Add, and go and come in a Get: more bytes than requests */
    ck_assert_uint_gt(users.needs.network_bytes, 100 * users.needs.queries);
    ck_assert_uint_ge(kept.needs.memory_bytes, 4000);
    ck_assert_uint_le(kept.needs.memory_bytes, 5000);
    ck_assert_uint_gt(kept.needs.queries, 0);
    remove_measured(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster placement");
    TCase *tcase = tcase_create("placement");

    tcase_add_test(tcase, parts_lie_within_the_limits_of_servers_and_what_fits_nowhere_is_refused);
    tcase_add_test(tcase, the_parts_of_a_table_that_is_not_split_stay_together);
    tcase_add_test(tcase, nodes_write_what_their_tables_took);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
