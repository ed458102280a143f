/* What the files of tensor_matcher.h share:
 *
 *   tensor_matcher_text.c  what it says of workers and groups
 *   tensor_matcher_walk.c  the state as bytes
 *   tensor_matcher.c       all else
 *
 * Threads: as tensor_matcher.h says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_MATCHER_PRIVATE_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_MATCHER_PRIVATE_H

#include "engine/collectives/negotiation/tensor_matcher.h"

/* Names that are decided together. It lives as long as one of them is pending. */
typedef struct {
    char *names; /* sorted, a line each */
    size_t n_names;
    size_t n_complete; /* of the pending ones whose first request had this group */
    size_t n_users;
} Group;

typedef struct {
    char *name;
    Group *group;      /* of the first request; NULL: it has none */
    GPtrArray *others; /* of Group: in which others asked for it; NULL: none */
    uint32_t n_came;
    bool is_complete;         /* each worker has asked, or has joined */
    GError *fault;            /* why it cannot run */
    GList link;               /* in order */
    void **tags;              /* by rank; NULL: it has not asked */
    TensorRequest requests[]; /* by rank, of those that have asked */
} Pending;

struct TensorMatcher {
    uint32_t n_workers;
    const uint32_t *named; /* what texts call the workers; NULL: by their rank */
    GHashTable *pending;   /* by name */
    GQueue order;          /* of Pending */
    GHashTable *groups;    /* of Group, by names */
    bool *joined;          /* by rank */
    uint32_t n_joined;
    char **last_names; /* by rank: of its last request; NULL: it has made none */
    GError *closed;    /* why nothing can be asked any more; NULL: it can */
    GQueue decided;    /* of Decided */
    uint64_t n_decided;
};

/* What texts call the worker. */
static inline uint32_t matcher_named(const TensorMatcher *matcher, uint32_t rank)
{
    return matcher->named == NULL ? rank : matcher->named[rank];
}

/* Of the lowest rank that has asked, which rank is set to. A name is pending because somebody has
 * asked. */
static inline const TensorRequest *matcher_first_request(const TensorMatcher *matcher,
                                                         const Pending *pending, uint32_t *rank)
{
    for (*rank = 0; *rank + 1 < matcher->n_workers && pending->tags[*rank] == NULL; ++*rank)
        ;
    return &pending->requests[*rank];
}

/* Takes the names, of which there is one at least. (matcher_leave_group) */
Group *matcher_group_of(TensorMatcher *matcher, char *names, size_t n);

/* The group is freed once nobody uses it. */
void matcher_leave_group(TensorMatcher *matcher, Group *group);

/* Nobody has asked for it yet. group, which it uses, NULL: none. */
Pending *matcher_pending_new(TensorMatcher *matcher, const char *name, Group *group);

/* ---- tensor_matcher_text.c ---- */

/* The workers that have asked. (transfer full) */
char *matcher_name_asking(const TensorMatcher *matcher, const Pending *pending);

/* "workers disagree on ...", with both sides. (transfer full) */
GError *matcher_tell_mismatch(const TensorMatcher *matcher, const Pending *pending,
                              const TensorRequest *one, const TensorRequest *other);

/* "together with ..." or "alone". group NULL: none. (transfer full) */
char *matcher_describe_group(const Group *group, const char *name);

#endif
