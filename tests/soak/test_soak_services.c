/* The largest body that a service takes, 1 GiB, as a request and as an answer, between two nodes,
 * through shared memory and over TCP: it comes whole, and the next byte is refused. */
#include <rubato/mix.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

static const size_t LARGEST = (size_t)1 << 30;

static uint64_t word_of(size_t i)
{
    return rubato_mix64(i + 1);
}

/* (transfer full) */
static uint64_t *make_body(void)
{
    uint64_t *const words = g_malloc(LARGEST);

    for (size_t i = 0; i < LARGEST / sizeof *words; i++)
        words[i] = word_of(i);
    return words;
}

static bool is_body(const void *bytes, size_t n)
{
    const uint64_t *const words = bytes;
    bool is_right = n == LARGEST;

    for (size_t i = 0; i < LARGEST / sizeof *words && is_right; i++)
        is_right = words[i] == word_of(i);
    return is_right;
}

static bool take_body(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                      void *user_data, GError **error)
{
    (void)user_data;
    (void)error;
    return rubato_write_u32(answer, is_body(request->bytes, request->n_bytes));
}

static bool give_body(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                      void *user_data, GError **error)
{
    g_autofree uint64_t *words = make_body();

    (void)request;
    (void)user_data;
    (void)error;
    return rubato_write(answer, words, LARGEST);
}

static bool ask(RubatoEngine *engine, GError **error)
{
    RubatoQuestion question = { .service = "take",
                                .to = { .group = RUBATO_GROUP_NODE, .number = CLUSTER_IDS[1] },
                                .timeout_ms = 600000 };
    g_autoptr(GBytes) answer = NULL, given = NULL;
    GError *found = NULL;
    gsize n;

    {
        g_autofree uint64_t *words = make_body();

        question.bytes = words;
        question.n_bytes = LARGEST;
        if (!rubato_engine_ask(engine, &question, &answer, error))
            return false;
        EXPECT(*(const uint32_t *)g_bytes_get_data(answer, &n) == 1, "other bytes have come");
        question.n_bytes = LARGEST + 1; /* refused before a byte is read */
        EXPECT(!rubato_engine_ask(engine, &question, NULL, &found), "it took more");
        if (!cluster_expect_error(&found, RUBATO_ERROR_INVALID, "", error))
            return false;
    }
    question.service = "give";
    question.bytes = NULL;
    question.n_bytes = 0;
    if (!rubato_engine_ask(engine, &question, &given, error))
        return false;
    const void *const bytes = g_bytes_get_data(given, &n);
    EXPECT(is_body(bytes, n), "%zu bytes have come back", n);
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return rubato_engine_serve(engine, "take", take_body, NULL, error) &&
           rubato_engine_serve(engine, "give", give_body, NULL, error) &&
           rubato_engine_barrier(engine, error) &&
           (rubato_engine_node(engine) != CLUSTER_IDS[0] || ask(engine, error)) &&
           rubato_engine_barrier(engine, error);
}

static const char *const ways[] = { "shm", "tcp" };

START_TEST(the_largest_bodies_come_whole)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .over = ways[_i] });

    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("soak_services");
    TCase *const cases = cluster_add_case(suite, "largest");

    tcase_add_loop_test(cases, the_largest_bodies_come_whole, 0, G_N_ELEMENTS(ways));
    return run_suite(suite);
}
