/* Services in simulated clusters: each node serves one. After each task it asks all nodes, with a
 * body of up to some pieces, and comes to a barrier of the nodes that have workers. */
#include <string.h>

#include "engine/engine_private.h"
#include "engine/services/service_message.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/sim/sim_cluster_private.h"

#define LONGEST_MS 3600000u /* no answer may need the timeout */

static bool echo(const RubatoServiceRequest *request, RubatoByteWriter *answer, void *user_data,
                 GError **error)
{
    (void)user_data;
    (void)error;
    rubato_write_u32(answer, request->node);
    rubato_write(answer, request->bytes, request->n_bytes);
    return true;
}

bool sim_services_begin(SimNode *node, GError **error)
{
    return !node->cluster->scenario->asks_services ||
           rubato_engine_serve(node->engine, "echo", echo, NULL, error);
}

static bool check_answer(const SimNode *node, const RubatoServiceAnswer *answer,
                         const uint8_t *bytes, size_t n, GError **error)
{
    if (answer->error != NULL) {
        g_propagate_error(error, g_error_copy(answer->error));
        return false;
    }
    RubatoByteReader reader = rubato_byte_reader_of(answer->bytes);
    if (rubato_read_u32(&reader) != node->number || rubato_byte_reader_left(&reader) != n ||
        memcmp(rubato_read_bytes(&reader, n), bytes, n) != 0)
        sim_fail("node %u has answered something else", answer->node);
    node->cluster->progress_ns = sim_now_ns();
    return true;
}

static bool ask_all(const SimNode *node, uint64_t *state, GError **error)
{
    const size_t n = random_below(state, 8) == 0
                         ? random_below(state, 2 * (uint32_t)SERVICE_PIECE_BYTES)
                         : random_below(state, 2000);
    g_autofree uint8_t *bytes = g_malloc(n + 1);
    const RubatoQuestion question = {
        .service = "echo", .bytes = bytes, .n_bytes = n, .timeout_ms = LONGEST_MS
    };
    RubatoServiceAnswer answer;
    uint32_t n_answers = 0;

    memset(bytes, (int)random_below(state, 256), n);
    g_autoptr(RubatoServiceCall) call = rubato_engine_request(node->engine, &question, error);
    TRY(call != NULL);
    for (; rubato_service_call_next(call, &answer); n_answers++)
        TRY(check_answer(node, &answer, bytes, n, error));
    if (n_answers != node->cluster->scenario->n_nodes)
        sim_fail("%u nodes have answered", n_answers);
    return true;
}

bool sim_services_ask(SimNode *node, uint32_t round, GError **error)
{
    const SimScenario *const scenario = node->cluster->scenario;
    const RubatoAddressees workers = { .group = RUBATO_GROUP_WORKERS };
    uint64_t state = scenario->seed * 104729 + round * 31 + node->number;

    if (!scenario->asks_services)
        return true;
    TRY(ask_all(node, &state, error));
    SIM_TRACE("all nodes have answered");
    return scenario->workers[node->number] == 0 ||
           rubato_engine_group_barrier(node->engine, &workers, LONGEST_MS, error);
}
