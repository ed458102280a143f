/* The negotiation: see tensor_matcher.h.
 *
 * A name that is pending has a Pending, from its first request to its decision. `pending` finds it
 * by name, and `order` keeps all of them in the order of their first requests: what follows from a
 * join or a loss is decided in this order, and so is the same wherever the same requests came.
 *
 * Invariant: between two calls no Pending can be decided. */
#include <string.h>

#include "engine/collectives/negotiation/tensor_matcher_private.h"

typedef struct {
    TensorDecision decision;
    GError *error;
    TensorRequest *requests;
    void *tags[];
} Decided;

/* ---- life ---- */

TensorMatcher *tensor_matcher_new(uint32_t n_workers)
{
    TensorMatcher *const matcher = g_new0(TensorMatcher, 1);

    matcher->n_workers = n_workers;
    matcher->pending = g_hash_table_new(g_str_hash, g_str_equal);
    matcher->groups = g_hash_table_new(g_str_hash, g_str_equal);
    matcher->joined = g_new0(bool, n_workers);
    matcher->last_names = g_new0(char *, n_workers);
    return matcher;
}

void tensor_matcher_name_workers(TensorMatcher *matcher, const uint32_t *ranks)
{
    matcher->named = ranks;
}

static Group *use_group(Group *group)
{
    group->n_users++;
    return group;
}

void matcher_leave_group(TensorMatcher *matcher, Group *group)
{
    if (--group->n_users > 0)
        return;
    g_hash_table_remove(matcher->groups, group->names);
    g_free(group->names);
    g_free(group);
}

/* NULL is allowed. */
static void leave_groups(TensorMatcher *matcher, GPtrArray *groups)
{
    for (guint i = 0; groups != NULL && i < groups->len; i++)
        matcher_leave_group(matcher, groups->pdata[i]);
    if (groups != NULL)
        g_ptr_array_unref(groups);
}

static void pending_free(TensorMatcher *matcher, Pending *pending)
{
    if (pending->group != NULL) {
        pending->group->n_complete -= pending->is_complete;
        matcher_leave_group(matcher, pending->group);
    }
    leave_groups(matcher, pending->others);
    g_clear_error(&pending->fault);
    g_free(pending->tags);
    g_free(pending->name);
    g_free(pending);
}

void tensor_decision_free(TensorDecision *decision)
{
    Decided *const decided = (Decided *)decision;

    if (decided == NULL)
        return;
    g_clear_error(&decided->error);
    g_free(decided->requests);
    g_free(decision->name);
    g_free(decided);
}

void tensor_matcher_free(TensorMatcher *matcher)
{
    TensorDecision *decision;

    if (matcher == NULL)
        return;
    while ((decision = tensor_matcher_next(matcher)) != NULL)
        tensor_decision_free(decision);
    for (GList *link = matcher->order.head; link != NULL;) {
        Pending *const pending = link->data;

        link = link->next;
        pending_free(matcher, pending);
    }
    for (uint32_t rank = 0; rank < matcher->n_workers; rank++)
        g_free(matcher->last_names[rank]);
    g_free(matcher->last_names);
    g_free(matcher->joined);
    g_clear_error(&matcher->closed);
    g_hash_table_unref(matcher->pending);
    g_hash_table_unref(matcher->groups);
    g_free(matcher);
}

/* ---- decisions ---- */

TensorDecision *tensor_matcher_next(TensorMatcher *matcher)
{
    return g_queue_pop_head(&matcher->decided);
}

/* Takes the name and the error. tags may be NULL. */
static Decided *decide(TensorMatcher *matcher, char *name, GError *error, void *const *tags,
                       uint32_t last)
{
    Decided *const decided =
        g_malloc0(sizeof(Decided) + matcher->n_workers * sizeof(decided->tags[0]));

    if (tags != NULL)
        memcpy(decided->tags, tags, matcher->n_workers * sizeof *tags);
    decided->error = error;
    decided->decision = (TensorDecision){ .name = name,
                                          .error = error,
                                          .tags = decided->tags,
                                          .last = last,
                                          .number = ++matcher->n_decided,
                                          .n_group = 1 };
    g_queue_push_tail(&matcher->decided, decided);
    return decided;
}

/* Decides a name, and forgets it. Takes the error. */
static void end_pending(TensorMatcher *matcher, Pending *pending, GError *error)
{
    g_hash_table_remove(matcher->pending, pending->name);
    g_queue_unlink(&matcher->order, &pending->link);
    Decided *const decided =
        decide(matcher, g_steal_pointer(&pending->name), error, pending->tags, 0);
    decided->requests =
        g_memdup2(pending->requests, matcher->n_workers * sizeof *decided->requests);
    decided->decision.requests = decided->requests;
    if (pending->group != NULL)
        decided->decision.n_group = pending->group->n_names;
    pending_free(matcher, pending);
}

/* ---- when a name can be decided ---- */

/* Looks whether the requests of all ranks fit, in the order of the ranks. */
static GError *find_mismatch(const TensorMatcher *matcher, const Pending *pending)
{
    uint32_t rank;
    const TensorRequest *const first = matcher_first_request(matcher, pending, &rank);

    for (rank++; rank < matcher->n_workers; rank++)
        if (pending->tags[rank] != NULL && !tensor_request_fits(first, &pending->requests[rank]))
            return matcher_tell_mismatch(matcher, pending, first, &pending->requests[rank]);
    return NULL;
}

/* A worker has joined, and the operation needs it. */
static GError *find_joined(const TensorMatcher *matcher, const Pending *pending)
{
    uint32_t first, rank = 0;
    const TensorRequest *const request = matcher_first_request(matcher, pending, &first);

    while (rank < matcher->n_workers && pending->tags[rank] != NULL)
        rank++;
    if (rank == matcher->n_workers || tensor_request_may_join(request))
        return NULL;
    return g_error_new(RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                       "%s %s needs worker %u, which has joined; only allreduce and named "
                       "barriers go on without it",
                       tensor_operation_name(request->operation), pending->name,
                       matcher_named(matcher, rank));
}

/* Decides the group's names that are pending. */
static void end_group(TensorMatcher *matcher, const Group *group, const GError *error)
{
    g_auto(GStrv) names = g_strsplit(group->names, "\n", -1);

    for (char **name = names; *name != NULL; name++) {
        Pending *const pending = g_hash_table_lookup(matcher->pending, *name);

        if (pending != NULL)
            end_pending(matcher, pending, error == NULL ? NULL : g_error_copy(error));
    }
}

/* Decides the name together with its group, or with all that workers took for its group. */
static void end_together(TensorMatcher *matcher, Pending *pending)
{
    g_autoptr(GError) fault = g_steal_pointer(&pending->fault);
    GPtrArray *groups = g_steal_pointer(&pending->others);

    if (pending->group != NULL && groups == NULL)
        groups = g_ptr_array_new();
    if (pending->group != NULL)
        g_ptr_array_add(groups, use_group(pending->group));
    else
        end_pending(matcher, pending, fault == NULL ? NULL : g_error_copy(fault));
    for (guint i = 0; groups != NULL && i < groups->len; i++)
        end_group(matcher, groups->pdata[i], fault);
    leave_groups(matcher, groups);
}

/* Decides the name if nobody is missing, and its group. Returns whether it decided anything. */
static bool check_pending(TensorMatcher *matcher, Pending *pending)
{
    uint32_t n_joined_silent = 0;

    if (pending->n_came + matcher->n_joined < matcher->n_workers)
        return false;
    for (uint32_t rank = 0; rank < matcher->n_workers; rank++)
        n_joined_silent += matcher->joined[rank] && pending->tags[rank] == NULL;
    if (pending->n_came + n_joined_silent < matcher->n_workers)
        return false;
    if (!pending->is_complete) {
        pending->is_complete = true;
        if (pending->group != NULL)
            pending->group->n_complete++;
        if (pending->fault == NULL)
            pending->fault = find_mismatch(matcher, pending);
        if (pending->fault == NULL)
            pending->fault = find_joined(matcher, pending);
    }
    if (pending->fault == NULL && pending->group != NULL &&
        pending->group->n_complete < pending->group->n_names)
        return false;
    end_together(matcher, pending);
    return true;
}

/* Somebody has joined. */
static void check_all(TensorMatcher *matcher)
{
    for (GList *link = matcher->order.head; link != NULL;)
        /* a decision may end others, too */
        link = check_pending(matcher, link->data) ? matcher->order.head : link->next;
}

/* ---- requests ---- */

static int compare_names(const void *one, const void *other)
{
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

/* The sorted names, a line each; NULL: it is no group. (transfer full) */
static char *name_group(const TensorAsk *asks, size_t n)
{
    g_autofree const char **names = g_new(const char *, n + 1);

    if (n < 2)
        return NULL;
    for (size_t i = 0; i < n; i++)
        names[i] = asks[i].name;
    names[n] = NULL;
    qsort(names, n, sizeof *names, compare_names);
    return g_strjoinv("\n", (char **)names);
}

static bool check_open(const TensorMatcher *matcher, uint32_t rank, GError **error)
{
    if (matcher->closed != NULL) {
        g_propagate_error(error, g_error_copy(matcher->closed));
        return false;
    }
    if (!matcher->joined[rank])
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "worker %u has joined; it can ask again once all have joined",
                matcher_named(matcher, rank));
    return false;
}

/* No name is pending for the worker, or comes twice. */
static bool check_new(const TensorMatcher *matcher, uint32_t rank, const TensorAsk *asks, size_t n,
                      GError **error)
{
    g_autoptr(GHashTable) names = n < 2 ? NULL : g_hash_table_new(g_str_hash, g_str_equal);

    for (size_t i = 0; i < n; i++) {
        const Pending *const pending = g_hash_table_lookup(matcher->pending, asks[i].name);
        const bool is_pending = pending != NULL && pending->tags[rank] != NULL;

        if (!is_pending && (names == NULL || g_hash_table_add(names, (void *)asks[i].name)))
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS,
                    "worker %u asks for %s %s while its %s of that name is pending",
                    matcher_named(matcher, rank), tensor_operation_name(asks[i].request.operation),
                    asks[i].name,
                    is_pending ? tensor_operation_name(pending->requests[rank].operation)
                               : "request");
        return false;
    }
    return true;
}

Group *matcher_group_of(TensorMatcher *matcher, char *names, size_t n)
{
    Group *group = g_hash_table_lookup(matcher->groups, names);

    if (group != NULL) {
        g_free(names);
        return use_group(group);
    }
    group = g_new0(Group, 1);
    group->names = names;
    group->n_names = n;
    g_hash_table_insert(matcher->groups, group->names, group);
    return use_group(group);
}

/* The group of the asks; NULL: they are none. (matcher_leave_group) */
static Group *find_group(TensorMatcher *matcher, const TensorAsk *asks, size_t n)
{
    char *const names = name_group(asks, n);

    return names == NULL ? NULL : matcher_group_of(matcher, names, n);
}

Pending *matcher_pending_new(TensorMatcher *matcher, const char *name, Group *group)
{
    Pending *const pending =
        g_malloc0(sizeof(Pending) + matcher->n_workers * sizeof(pending->requests[0]));

    pending->name = g_strdup(name);
    pending->group = group == NULL ? NULL : use_group(group);
    pending->tags = g_new0(void *, matcher->n_workers);
    pending->link.data = pending;
    g_hash_table_insert(matcher->pending, pending->name, pending);
    g_queue_push_tail_link(&matcher->order, &pending->link);
    return pending;
}

/* A worker asks for the name in another group than others before it, or in none. */
static void note_other_group(const TensorMatcher *matcher, Pending *pending, uint32_t rank,
                             Group *group)
{
    if (pending->fault == NULL) {
        g_autofree char *earlier = matcher_describe_group(pending->group, pending->name);
        g_autofree char *now = matcher_describe_group(group, pending->name);

        g_autofree char *others = matcher_name_asking(matcher, pending);

        pending->fault =
            g_error_new(RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                        "workers disagree on %s: worker %u asks for it %s, but %s "
                        "asked for it %s",
                        pending->name, matcher_named(matcher, rank), now, others, earlier);
    }
    if (group == NULL)
        return;
    if (pending->others == NULL)
        pending->others = g_ptr_array_new();
    g_ptr_array_add(pending->others, use_group(group));
}

/* group NULL: none. */
static void take_in(TensorMatcher *matcher, uint32_t rank, const TensorAsk *ask, Group *group)
{
    Pending *pending = g_hash_table_lookup(matcher->pending, ask->name);

    if (pending == NULL)
        pending = matcher_pending_new(matcher, ask->name, group);
    else if (pending->group != group)
        note_other_group(matcher, pending, rank, group);
    pending->requests[rank] = ask->request;
    pending->tags[rank] = ask->tag;
    pending->n_came++;
}

void tensor_matcher_note(TensorMatcher *matcher, uint32_t rank, const char *name)
{
    if (g_strcmp0(matcher->last_names[rank], name) == 0)
        return;
    g_free(matcher->last_names[rank]);
    matcher->last_names[rank] = g_strdup(name);
}

bool tensor_matcher_ask(TensorMatcher *matcher, uint32_t rank, const TensorAsk *asks, size_t n,
                        GError **error)
{
    if (!check_open(matcher, rank, error) || !check_new(matcher, rank, asks, n, error))
        return false;
    Group *const group = find_group(matcher, asks, n);
    for (size_t i = 0; i < n; i++)
        take_in(matcher, rank, &asks[i], group);
    if (n > 0)
        tensor_matcher_note(matcher, rank, asks[n - 1].name);
    for (size_t i = 0; i < n; i++) {
        Pending *const pending = g_hash_table_lookup(matcher->pending, asks[i].name);

        if (pending != NULL) /* else it was decided with its group */
            check_pending(matcher, pending);
    }
    if (group != NULL)
        matcher_leave_group(matcher, group);
    return true;
}

bool tensor_matcher_join(TensorMatcher *matcher, uint32_t rank, GError **error)
{
    if (matcher->joined[rank]) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS, "worker %u has joined already",
                    matcher_named(matcher, rank));
        return false;
    }
    if (!check_open(matcher, rank, error))
        return false;
    matcher->joined[rank] = true;
    matcher->n_joined++;
    check_all(matcher);
    if (matcher->n_joined == matcher->n_workers) {
        memset(matcher->joined, 0, matcher->n_workers * sizeof *matcher->joined);
        matcher->n_joined = 0;
        decide(matcher, NULL, NULL, NULL, rank);
    }
    return true;
}

void tensor_matcher_cancel(TensorMatcher *matcher, const GError *why)
{
    if (matcher->closed != NULL)
        return;
    matcher->closed = g_error_copy(why);
    while (matcher->order.head != NULL)
        end_pending(matcher, matcher->order.head->data, g_error_copy(why));
    if (matcher->n_joined > 0) {
        memset(matcher->joined, 0, matcher->n_workers * sizeof *matcher->joined);
        matcher->n_joined = 0;
        decide(matcher, NULL, g_error_copy(why), NULL, 0);
    }
}

void tensor_matcher_leave(TensorMatcher *matcher, uint32_t rank, const char *why)
{
    g_autoptr(GError) error =
        g_error_new(RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "worker %u %s: no collective that needs it can be made any more",
                    matcher_named(matcher, rank), why);

    tensor_matcher_cancel(matcher, error);
}

/* ---- who is missing ---- */

bool tensor_matcher_is_idle(const TensorMatcher *matcher, char *const *names, size_t n)
{
    bool is_idle = matcher->closed == NULL && matcher->n_joined == 0;

    for (size_t i = 0; i < n && is_idle && matcher->order.head != NULL; i++)
        is_idle = !g_hash_table_contains(matcher->pending, names[i]);
    return is_idle;
}

const GError *tensor_matcher_closed(const TensorMatcher *matcher)
{
    return matcher->closed;
}

bool tensor_matcher_pending(const TensorMatcher *matcher, const void **at, TensorPending *pending)
{
    const GList *const link = *at == NULL ? matcher->order.head : ((const GList *)*at)->next;
    uint32_t rank;

    if (link == NULL)
        return false;
    const Pending *const found = link->data;
    *pending =
        (TensorPending){ found->name, matcher_first_request(matcher, found, &rank), found->tags };
    *at = link;
    return true;
}

const bool *tensor_matcher_joined(const TensorMatcher *matcher)
{
    return matcher->n_joined == 0 ? NULL : matcher->joined;
}
