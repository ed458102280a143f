/* Gives the coordinator of collectives lines of notices that nodes may send, none of which need
 * make sense. What it decides can be read, and is numbered without a gap.
 *
 * The input: messages, each a node, a size and its lines. */
#include <stdlib.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_text.h"
#include "tests/support/scheduler/scheduler_fixture.h"

static uint32_t epoch;
static uint64_t n_decided;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Node 0 gets all decisions. */
static void sent(void *user, uint32_t node, const Control *control)
{
    put_sent(user, node, control);
    if (node != 0 || control->kind != CONTROL_DECIDE)
        return;
    for (const char *at = control->decide.lines; *at != '\0';) {
        g_auto(TensorVerdict) verdict = { 0 };

        if (!tensor_verdict_read(&at, &verdict) || verdict.number != n_decided + 1)
            abort();
        n_decided += verdict.kind == TENSOR_VERDICT_AGAIN ? verdict.n : 1;
    }
}

/* Ranks 0 and 1 are on node 0, rank 2 is on node 2; node 1 has no worker. */
static void begin_task(void)
{
    for (uint32_t node = 0; node < N_NODES; node++) {
        Control run = call(1, CONTROL_CALL_RUN, "task x", "same");

        run.propose.workers = "2 0 1";
        say(node, run);
    }
    for (uint32_t node = 0; node < N_NODES; node++)
        epoch = expect(node, CONTROL_GO)->go.id;
    for (uint32_t node = 0; node < N_NODES; node++)
        ready(node, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    n_decided = 0;
    set_up();
    replace_scheduler(&CONFIG, sent);
    begin();
    begin_task();
    for (size_t at = 0; at + 3 <= size;) {
        const size_t n = MIN(data[at + 1] + 256u * data[at + 2], size - at - 3);
        g_autofree char *lines = g_strndup((const char *)data + at + 3, n);

        hears(data[at] % N_NODES,
              (Control){ .kind = CONTROL_ENQUEUE, .enqueue = { epoch, lines } });
        now_ms++;
        at += 3 + n;
    }
    g_free(scheduler_waiting(scheduler, now_ms)); /* whatever is pending can be described */
    tear_down();
    return 0;
}
