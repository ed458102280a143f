/* Strangers greet the scheduler's node without end, before its run has begun and while it runs. Its
 * memory does not grow, the nodes meet, and the run is right. RUBATO_SOAK_SECONDS is the time in
 * seconds (default 600), half of it before the run.
 *
 * docs/security.md: Who can do what */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/cluster/endless_run.h"
#include "tests/support/cluster/stranger.h"
#include "tests/support/runner.h"

/* What comes first may fill caches, and is not counted. */
enum { FIRST_GREETINGS = 100000, MOST_GROWTH_KB = 16 << 10 };

/* Greetings on a connection: then it is another one's turn, as it would be a stranger's. */
enum { GREETINGS_OF_CONNECTION = 10000 };

static int64_t half_ms(void)
{
    const char *const text = getenv("RUBATO_SOAK_SECONDS");

    return (text == NULL ? 600 : g_ascii_strtoll(text, NULL, 10)) * 500;
}

/* A node's whole log would fill the pipe to the case, which does not read it meanwhile. So it gets
 * the first message alone, which is that a node is missing. */
static void say_once(const char *domain, GLogLevelFlags level, const char *text, void *user)
{
    static bool said;

    (void)domain;
    (void)user;
    if (!said && (level & G_LOG_LEVEL_MESSAGE) != 0)
        cluster_say("%s", text);
    said |= (level & G_LOG_LEVEL_MESSAGE) != 0;
}

static uint32_t greet_on_a_connection(uint16_t port, uint32_t from)
{
    TcpHand hand = stranger_connect_as_node(port);

    for (uint32_t i = 0; i < GREETINGS_OF_CONNECTION; i++)
        stranger_greet(&hand, from + i);
    close(hand.fd);
    stranger_be_refused(port); /* so all of them have been taken in */
    return from + GREETINGS_OF_CONNECTION;
}

static void greet_for_long(const ClusterRun *run, const char *when)
{
    const pid_t pid = run->processes[0].pid;
    uint32_t n = 0;

    while (n < FIRST_GREETINGS)
        n = greet_on_a_connection(run->port, n);
    const long before_kb = stranger_resident_kb(pid);
    long most_kb = before_kb;
    for (const int64_t end_ms = cluster_now_ms() + half_ms(); cluster_now_ms() < end_ms;) {
        n = greet_on_a_connection(run->port, n);
        const long now_kb = stranger_resident_kb(pid);
        most_kb = MAX(most_kb, now_kb);
        ck_assert_msg(most_kb < before_kb + MOST_GROWTH_KB, "%ld kB became %ld by %u greetings %s",
                      before_kb, most_kb, n, when);
    }
    printf("%u greetings %s: %ld kB became at most %ld\n", n, when, before_kb, most_kb);
}

START_TEST(greetings_without_end_take_no_memory)
{
    ClusterRun *const run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                         .nodes = { { 1, 1 }, { 1, 2 } },
                                         .stall_ms = 100,
                                         .rendezvous_ms = (uint32_t)half_ms() + 600000 });

    endless_run_open();
    g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_WARNING | G_LOG_LEVEL_MESSAGE, say_once, NULL);
    cluster_start_node(run, 0, endless_run_play, NULL);
    cluster_wait_for(run, 0, "missing: node 7");
    greet_for_long(run, "before the run");
    cluster_start_node(run, 1, endless_run_play, NULL);
    cluster_wait_for(run, 0, "busy");
    greet_for_long(run, "while it runs");
    endless_run_end();
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("soak_greetings");
    TCase *const cases = cluster_add_case(suite, "soak_greetings");

    tcase_add_test(cases, greetings_without_end_take_no_memory);
    tcase_set_timeout(cases, (double)half_ms() / 500 + 600);
    return run_suite(suite);
}
