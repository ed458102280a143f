/* A node whose workers take the place of lost ones is told how collectives stand: see
 * scheduler_tensors.c.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/tensors/scheduler_tensors_private.h"

/* Of lines in a message: less than it may have, by more than one line. */
enum { TOLD_BYTES = 512 << 10 };

static void add_error(TensorVerdict *verdict, const GError *error)
{
    verdict->code = control_code_of(error);
    verdict->error = g_strdup(error->message);
}

static void add_set(const TensorCoordinator *it, uint32_t id, GString *lines)
{
    g_auto(TensorVerdict) verdict = { .kind = TENSOR_VERDICT_SET, .set = id };
    g_autofree void **members = g_new0(void *, it->n_workers);
    const uint32_t *ranks;
    uint32_t n_members;
    const TensorMatcher *const matcher = tensor_sets_matcher(it->sets, id, &ranks, &n_members);

    if (matcher == NULL)
        return;
    for (uint32_t i = 0; i < n_members; i++)
        members[ranks[i]] = members;
    tensor_sets_age(it->sets, id, &verdict.last, &verdict.n);
    verdict.ranks = tensor_ranks_write(members, it->n_workers);
    if (tensor_matcher_closed(matcher) != NULL)
        add_error(&verdict, tensor_matcher_closed(matcher));
    tensor_verdict_write(lines, &verdict);
}

/* Tells a node that is back how things stand. No worker may have asked for anything yet. */
static void tell_all(Scheduler *scheduler, const SchedulerTask *task, uint32_t node)
{
    const TensorCoordinator *const it = task->tensors;
    g_autoptr(GString) lines = g_string_new(NULL);
    g_auto(TensorVerdict) back = { .kind = TENSOR_VERDICT_BACK,
                                   .number = it->n_verdicts,
                                   .slot = it->n_cuts,
                                   .cutovers = it->cutovers };

    if (it->sets != NULL) {
        back.n = tensor_sets_generation(it->sets);
        back.last = tensor_sets_n_made(it->sets);
    }
    if (back.n > 0)
        add_error(&back, it->why);
    for (uint32_t id = 0; it->sets != NULL && id < tensor_sets_end(it->sets); id++) {
        add_set(it, id, lines);
        if (lines->len < TOLD_BYTES)
            continue;
        scheduler_send(scheduler, node,
                       &(Control){ .kind = CONTROL_DECIDE, .decide = { task->epoch, lines->str } });
        g_string_truncate(lines, 0);
    }
    tensor_verdict_write(lines, &back);
    scheduler_send(scheduler, node,
                   &(Control){ .kind = CONTROL_DECIDE, .decide = { task->epoch, lines->str } });
}

bool tensors_come_back(Scheduler *scheduler, const SchedulerTask *task, uint32_t node,
                       const char *lines)
{
    TensorCoordinator *const it = task->tensors;
    g_auto(TensorNotice) notice = { 0 };

    if (!tensor_notice_read(&lines, it->n_workers, &notice) || notice.kind != TENSOR_NOTICE_BACK ||
        *lines != '\0')
        return false;
    it->is_away[node] = false;
    if (it->sets != NULL)
        it->heard[node] = tensor_sets_generation(it->sets);
    tell_all(scheduler, task, node);
    return true;
}
