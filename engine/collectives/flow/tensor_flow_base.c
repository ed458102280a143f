/* What combining, gathering and weighting share: steps, messages. See tensor_flow_private.h. */
#include "engine/collectives/flow/tensor_flow_private.h"

#include <rubato/error.h>

void tensor_flow_add_step(TensorFlow *flow, TensorSteps which, const TensorStep *step)
{
    g_queue_push_tail(&flow->possible[which], g_memdup2(step, sizeof *step));
}

bool tensor_flow_begin_message(const TensorFlow *flow, TensorMessageKind kind, uint64_t place,
                               size_t n_bytes, uint32_t to, TensorOutgoing *outgoing)
{
    const TensorMessage message = {
        .kind = kind, .number = flow->plan.number, .place = place, .n_bytes = n_bytes
    };

    outgoing->to = to;
    outgoing->is_lent = false;
    outgoing->message = flow->plan.carrier->new_message(flow->plan.user, flow->plan.nodes[to],
                                                        &message, &outgoing->bytes);
    return outgoing->message != NULL;
}

/* False: the carrier cannot; then it is begun as above. */
static bool lend_message(const TensorFlow *flow, const TensorMessage *message, uint32_t to,
                         Call *readers, TensorOutgoing *outgoing)
{
    const TensorCarrier *const carrier = flow->plan.carrier;
    void *const lent =
        carrier->lend_message == NULL || readers == NULL
            ? NULL
            : carrier->lend_message(flow->plan.user, flow->plan.nodes[to], message, readers);

    *outgoing = (TensorOutgoing){ .message = lent, .to = to, .is_lent = lent != NULL };
    return lent != NULL;
}

/* A message that shares the bytes of one of those. The same. */
static bool share_message(const TensorFlow *flow, const TensorMessage *message, uint32_t to,
                          const GArray *messages, TensorOutgoing *outgoing)
{
    const TensorCarrier *const carrier = flow->plan.carrier;
    void *shared = NULL;

    for (guint i = 0; carrier->share_message != NULL && i < messages->len && shared == NULL; i++) {
        const TensorOutgoing *const first = &g_array_index(messages, TensorOutgoing, i);

        if (first->bytes != NULL)
            shared = carrier->share_message(flow->plan.user, flow->plan.nodes[to], message,
                                            first->message);
    }
    *outgoing = (TensorOutgoing){ .message = shared, .to = to };
    return shared != NULL;
}

void tensor_flow_send(TensorFlow *flow, const TensorOutgoing *outgoing)
{
    /* release: the reads from arrays come before, for who takes what comes */
    atomic_fetch_add_explicit(&flow->n_sent, 1, memory_order_release);
    flow->plan.carrier->send(flow->plan.user, flow->plan.nodes[outgoing->to], outgoing->message);
}

void tensor_flow_forget(const TensorFlow *flow, const TensorOutgoing *outgoing)
{
    flow->plan.carrier->forget(flow->plan.user, flow->plan.nodes[outgoing->to], outgoing->message);
}

bool tensor_flow_begin_messages(const TensorFlow *flow, const TensorStep *step,
                                TensorMessageKind kind, size_t n_bytes, GArray *messages)
{
    return tensor_flow_lend_messages(flow, step, kind, NULL, n_bytes, NULL, messages);
}

bool tensor_flow_lend_messages(const TensorFlow *flow, const TensorStep *step,
                               TensorMessageKind kind, const void *values, size_t n_bytes,
                               Call *readers, GArray *messages)
{
    const TensorMessage lent = { .kind = kind,
                                 .number = flow->plan.number,
                                 .place = step->place,
                                 .bytes = values,
                                 .n_bytes = n_bytes };

    for (uint32_t i = 1; i < flow->plan.n_nodes; i++) {
        const uint32_t to = (flow->plan.self + i) % flow->plan.n_nodes;
        TensorOutgoing outgoing;

        if (!flow->ops->sends_to(flow, step, to))
            continue;
        if (!lend_message(flow, &lent, to, readers, &outgoing) &&
            !share_message(flow, &lent, to, messages, &outgoing) &&
            !tensor_flow_begin_message(flow, kind, step->place, n_bytes, to, &outgoing)) {
            tensor_flow_forget_messages(flow, messages);
            return false;
        }
        g_array_append_val(messages, outgoing);
    }
    return true;
}

uint32_t tensor_flow_places_of(const GArray *messages, void **places)
{
    uint32_t n = 0;

    for (guint i = 0; i < messages->len; i++) {
        void *const bytes = g_array_index(messages, TensorOutgoing, i).bytes;

        if (bytes != NULL)
            places[n++] = bytes;
    }
    return n;
}

bool tensor_flow_any_lent(const GArray *messages)
{
    bool any = false;

    for (guint i = 0; i < messages->len && !any; i++)
        any = g_array_index(messages, TensorOutgoing, i).is_lent;
    return any;
}

void tensor_flow_send_messages(TensorFlow *flow, const GArray *messages)
{
    for (guint i = 0; i < messages->len; i++)
        tensor_flow_send(flow, &g_array_index(messages, TensorOutgoing, i));
}

void tensor_flow_forget_messages(const TensorFlow *flow, const GArray *messages)
{
    for (guint i = 0; i < messages->len; i++)
        tensor_flow_forget(flow, &g_array_index(messages, TensorOutgoing, i));
}

/* Of a message to that node; to this one itself: to any other. 0: as few as possible. */
static size_t best_bytes(const TensorFlowPlan *plan, uint32_t to)
{
    size_t best = TENSOR_MESSAGE_MOST_BYTES;

    if (plan->carrier->best_bytes == NULL)
        return 0;
    for (uint32_t node = 0; node < plan->n_nodes; node++) {
        if (node == plan->self || (node != to && to != plan->self))
            continue;
        const size_t bytes = plan->carrier->best_bytes(plan->user, plan->nodes[node]);

        best = MIN(best, bytes);
    }
    return best;
}

uint32_t tensor_flow_most_pieces_to(const TensorFlow *flow, uint32_t to, size_t piece_bytes)
{
    const size_t n = best_bytes(&flow->plan, to) / piece_bytes;

    return (uint32_t)MAX(n, 1);
}

uint32_t tensor_flow_most_pieces(const TensorFlow *flow, size_t piece_bytes)
{
    return tensor_flow_most_pieces_to(flow, flow->plan.self, piece_bytes);
}

bool tensor_flow_is_first_ahead(const TensorFlowPlan *plan)
{
    bool is = plan->carrier->best_bytes != NULL;

    for (uint32_t to = 0; to < plan->n_nodes && is; to++) {
        const size_t bytes = to == plan->self ? TENSOR_AHEAD_BYTES : best_bytes(plan, to);

        is = bytes > 0 && bytes <= TENSOR_AHEAD_BYTES;
    }
    return is;
}

void *tensor_flow_keep(TensorFlow *flow, void *owner, const void **bytes)
{
    void *const kept = flow->plan.carrier->keep(flow->plan.user, owner, bytes);

    if (kept == NULL)
        tensor_flow_fail_here(
            flow, g_error_new_literal(
                      RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                      "values of a tensor that come before a node can combine them exceed what it "
                      "keeps of one other node (a quarter of its memory, and at least 1 GiB); call "
                      "for parts of the tensor one after another"));
    return kept;
}

void tensor_flow_drop(const TensorFlow *flow, void *owner)
{
    if (owner != NULL)
        flow->plan.carrier->drop(flow->plan.user, owner);
}

void tensor_flow_fail_here(TensorFlow *flow, GError *error)
{
    if (flow->error != NULL) {
        g_clear_error(&error);
        return;
    }
    flow->is_own_fault = true;
    flow->error = error != NULL ? error
                                : g_error_new(RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                                              "no memory for values of a tensor");
}
