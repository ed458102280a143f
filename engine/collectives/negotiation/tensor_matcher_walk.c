/* The negotiation as bytes: see tensor_matcher.h. */
#include "engine/collectives/negotiation/tensor_matcher_private.h"

/* group: written, if it writes. NULL: there is none. (leave_group, of one that is read) */
static Group *walk_group(StateWalk *walk, TensorMatcher *matcher, Group *group)
{
    char *names = walk_reads(walk) || group == NULL ? NULL : group->names;

    walk_text(walk, &names);
    const uint64_t n = walk_number(walk, group == NULL ? 0 : group->n_names);

    return walk_reads(walk) && names != NULL ? matcher_group_of(matcher, names, (size_t)n) : group;
}

static void walk_others(StateWalk *walk, TensorMatcher *matcher, Pending *pending)
{
    const size_t n = walk_count(walk, pending->others == NULL ? 0 : pending->others->len);

    if (walk_reads(walk) && n > 0)
        pending->others = g_ptr_array_new();
    for (size_t i = 0; i < n; i++) {
        Group *const other =
            walk_group(walk, matcher, walk_reads(walk) ? NULL : pending->others->pdata[i]);

        if (walk_reads(walk) && other != NULL)
            g_ptr_array_add(pending->others, other);
    }
}

static void walk_pending(StateWalk *walk, TensorMatcher *matcher, Pending *pending,
                         TensorTagWalk tag)
{
    char *name = pending == NULL ? NULL : pending->name;

    walk_text(walk, &name);
    Group *const group = walk_group(walk, matcher, pending == NULL ? NULL : pending->group);
    if (walk_reads(walk)) {
        pending = matcher_pending_new(matcher, name != NULL ? name : "", group);
        g_free(name);
        if (group != NULL) /* which uses it once more */
            matcher_leave_group(matcher, group);
    }
    walk_others(walk, matcher, pending);
    if (WALK(walk, pending->is_complete) && walk_reads(walk) && group != NULL)
        group->n_complete++;
    walk_error(walk, &pending->fault);
    for (uint32_t rank = 0; rank < matcher->n_workers && !walk->is_wrong; rank++) {
        if (walk_number(walk, pending->tags[rank] != NULL) == 0)
            continue;
        pending->tags[rank] = tag(walk, pending->tags[rank]);
        tensor_request_walk(walk, &pending->requests[rank]);
        pending->n_came += walk_reads(walk);
    }
    walk->is_wrong |= pending->n_came == 0; /* somebody has asked */
}

void tensor_matcher_walk(StateWalk *walk, TensorMatcher *matcher, TensorTagWalk tag)
{
    const GList *link = matcher->order.head;
    size_t n = walk_count(walk, matcher->order.length);

    for (; n > 0 && !walk->is_wrong; n--) {
        walk_pending(walk, matcher, walk_reads(walk) ? NULL : link->data, tag);
        link = walk_reads(walk) ? NULL : link->next;
    }
    for (uint32_t rank = 0; rank < matcher->n_workers; rank++) {
        matcher->n_joined += WALK(walk, matcher->joined[rank]) && walk_reads(walk);
        walk_text(walk, &matcher->last_names[rank]);
    }
    walk_error(walk, &matcher->closed);
    WALK(walk, matcher->n_decided);
}
