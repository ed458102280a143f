/* One operation's data between nodes: see tensor_flow.h. */
#include "engine/collectives/flow/tensor_combining_private.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/control/control.h"

/* A request for all tensors together. */
static void make_one(TensorFlow *flow)
{
    uint64_t n_values = 0;

    for (uint32_t i = 0; i < flow->plan.n_tensors; i++)
        n_values += tensor_request_values(&flow->plan.parts[(size_t)i * flow->n_local]->request);
    flow->request.n_dims = 1;
    flow->request.shape[0] = n_values;
}

static const TensorFlowOps *ops_of(const TensorRequest *request)
{
    if (request->operation == TENSOR_ALLGATHER || request->operation == TENSOR_ALLTOALL)
        return &tensor_gathering_ops;
    if (request->operation == TENSOR_ALLREDUCE &&
        request->reduce.reduction == RUBATO_REDUCTION_ADASUM)
        return &tensor_weighting_ops;
    return &tensor_combining_ops;
}

bool tensor_flow_ahead(const TensorFlowPlan *plan, uint32_t to, TensorAhead *ahead)
{
    const TensorRequest *const request = &plan->parts[0]->request;

    if (request->operation == TENSOR_BARRIER)
        return false;
    return ops_of(request) == &tensor_gathering_ops ? gathering_ahead(plan, to, ahead)
                                                    : combining_ahead(plan, to, ahead);
}

TensorFlow *tensor_flow_new(const TensorFlowPlan *plan)
{
    TensorFlow *const flow = g_new0(TensorFlow, 1);
    const uint32_t n = plan->n_nodes;

    flow->plan = *plan;
    flow->plan.nodes = g_memdup2(plan->nodes, n * sizeof *plan->nodes);
    flow->plan.first_ranks = g_memdup2(plan->first_ranks, n * sizeof *plan->first_ranks);
    flow->plan.n_ranks_of = g_memdup2(plan->n_ranks_of, n * sizeof *plan->n_ranks_of);
    flow->n_local = plan->n_ranks_of[plan->self];
    flow->plan.parts =
        g_memdup2(plan->parts, (size_t)plan->n_tensors * flow->n_local * sizeof(TensorPart *));
    flow->plan.residuals =
        plan->residuals == NULL
            ? NULL
            : g_memdup2(plan->residuals, plan->n_tensors * sizeof(TensorResidual *));
    flow->n_awaited = g_new0(uint64_t, n);
    for (uint32_t i = 0; i < flow->n_local; i++)
        if (plan->parts[i] != NULL)
            flow->request = plan->parts[i]->request;
    if (plan->n_tensors > 1)
        make_one(flow);
    flow->size_class = TENSOR_CLASSES;
    flow->ops = ops_of(&flow->request);
    flow->ops->begin(flow);
    if (tensor_way_relays(flow->way)) {
        flow->ops = &tensor_relaying_ops;
        flow->ops->begin(flow);
    }
    flow->plan.cutovers = NULL; /* it is the caller's */
    return flow;
}

void tensor_flow_free(TensorFlow *flow)
{
    TensorStep *step;

    if (flow == NULL)
        return;
    for (unsigned i = 0; i <= TENSOR_STEPS_ALL; i++)
        while ((step = g_queue_pop_head(&flow->possible[i])) != NULL) {
            tensor_flow_drop(flow, step->message);
            g_free(step);
        }
    flow->ops->end(flow);
    g_clear_error(&flow->error);
    g_free(flow->n_awaited);
    g_free((void *)flow->plan.parts);
    g_free((void *)flow->plan.residuals);
    g_free((void *)flow->plan.nodes);
    g_free((void *)flow->plan.first_ranks);
    g_free((void *)flow->plan.n_ranks_of);
    g_free(flow);
}

uint32_t tensor_flow_class(const TensorFlow *flow, TensorWay *way)
{
    *way = flow->way;
    return flow->size_class;
}

bool tensor_flow_is_small(const TensorFlow *flow)
{
    return flow->is_small;
}

/* ---- what comes ---- */

/* The node's place among those of the flow; n_nodes: it is none of the others. */
static uint32_t find_node(const TensorFlow *flow, uint32_t node)
{
    uint32_t from = 0;

    while (from < flow->plan.n_nodes && flow->plan.nodes[from] != node)
        from++;
    return from == flow->plan.self ? flow->plan.n_nodes : from;
}

static const char *take_failure(TensorFlow *flow, const TensorMessage *message, void *owner)
{
    g_autofree char *text = g_utf8_make_valid(message->bytes, (gssize)message->n_bytes);
    GError *error = NULL;

    if (!control_check(message->code, text, &error))
        tensor_flow_fail(flow, error);
    g_clear_error(&error);
    tensor_flow_drop(flow, owner);
    return NULL;
}

const char *tensor_flow_take(TensorFlow *flow, uint32_t node, const TensorMessage *message,
                             void *owner)
{
    const uint32_t from = find_node(flow, node);

    /* acquire: with tensor_flow_send; the number itself does not matter */
    (void)atomic_load_explicit(&flow->n_sent, memory_order_acquire);
    if (from == flow->plan.n_nodes)
        return "a piece of a tensor in which it has no part";
    if (flow->error != NULL) {
        tensor_flow_drop(flow, owner);
        return NULL;
    }
    return message->kind == TENSOR_MESSAGE_FAILURE ? take_failure(flow, message, owner)
                                                   : flow->ops->take(flow, from, message, owner);
}

uint8_t *tensor_flow_place(const TensorFlow *flow, uint32_t node, const TensorMessage *message)
{
    const uint32_t from = find_node(flow, node);

    /* acquire: as above, for what is written there meanwhile */
    (void)atomic_load_explicit(&flow->n_sent, memory_order_acquire);
    return flow->find_place == NULL || flow->error != NULL || from == flow->plan.n_nodes
               ? NULL
               : flow->find_place(flow, from, message);
}

/* ---- steps ---- */

bool tensor_flow_has_step(const TensorFlow *flow)
{
    bool is_possible = false;

    for (unsigned i = 0; i <= TENSOR_STEPS_ALL; i++)
        is_possible |= flow->possible[i].head != NULL;
    return flow->error == NULL && (is_possible || flow->ops->has_next(flow));
}

bool tensor_flow_has_long_steps(const TensorFlow *flow)
{
    return flow->error == NULL && flow->possible[TENSOR_STEPS_ALL].length > 1;
}

bool tensor_flow_next(TensorFlow *flow, TensorSteps which, TensorStep *step)
{
    TensorStep *possible = NULL;

    if (flow->error != NULL)
        return false;
    for (unsigned i = 0; i <= which && possible == NULL; i++)
        possible = g_queue_pop_head(&flow->possible[i]);
    if (possible == NULL)
        return which == TENSOR_STEPS_ALL && flow->ops->next(flow, step);
    *step = *possible;
    g_free(possible);
    return true;
}

void tensor_flow_each_target(const TensorFlow *flow, const TensorStep *step,
                             void (*call)(void *user, uint32_t node), void *user)
{
    for (uint32_t to = 0; to < flow->plan.n_nodes; to++)
        if (to != flow->plan.self && flow->ops->sends_to(flow, step, to))
            call(user, flow->plan.nodes[to]);
}

bool tensor_flow_do(TensorFlow *flow, const TensorStep *step)
{
    return flow->ops->run(flow, step);
}

void tensor_flow_did(TensorFlow *flow, TensorStep *step, bool ok)
{
    tensor_flow_drop(flow, step->message);
    step->message = NULL;
    flow->n_left -= MAX(step->n, 1);
    if (!ok)
        tensor_flow_fail_here(flow, NULL);
    else
        flow->ops->did(flow, step);
}

/* ---- the end ---- */

bool tensor_flow_has_ended(const TensorFlow *flow)
{
    return flow->n_left == 0 || flow->error != NULL;
}

const GError *tensor_flow_error(const TensorFlow *flow)
{
    return flow->error;
}

void tensor_flow_fail(TensorFlow *flow, const GError *error)
{
    if (flow->error == NULL)
        flow->error = g_error_copy(error);
}

bool tensor_flow_tell_failure(const TensorFlow *flow)
{
    if (!flow->is_own_fault)
        return false;
    const size_t n_text = strlen(flow->error->message);
    const size_t n = MIN(n_text, (size_t)CONTROL_MAX_TEXT);
    for (uint32_t to = 0; to < flow->plan.n_nodes; to++) {
        const TensorMessage message = { .kind = TENSOR_MESSAGE_FAILURE,
                                        .code = control_code_of(flow->error),
                                        .number = flow->plan.number,
                                        .n_bytes = n };
        void *bytes;

        if (to == flow->plan.self)
            continue;
        void *const sent = flow->plan.carrier->new_message(flow->plan.user, flow->plan.nodes[to],
                                                           &message, &bytes);
        if (sent == NULL)
            g_error("no memory to say that there is none; the node ends here");
        memcpy(bytes, flow->error->message, n);
        flow->plan.carrier->send(flow->plan.user, flow->plan.nodes[to], sent);
    }
    return true;
}

bool tensor_flow_has_node(const TensorFlow *flow, uint32_t node)
{
    bool has = false;

    for (uint32_t i = 0; i < flow->plan.n_nodes && !has; i++)
        has = flow->plan.nodes[i] == node;
    return has;
}

bool tensor_flow_waits_for(const TensorFlow *flow, uint32_t *node)
{
    for (uint32_t i = 0; i < flow->plan.n_nodes; i++)
        if (flow->n_awaited[i] > 0) {
            *node = flow->plan.nodes[i];
            return true;
        }
    return false;
}
