/* What the scheduler knows of the steps that follow a loss, or by which parts go elsewhere, for its
 * files.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_RECOVERY_PRIVATE_H
#define RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_RECOVERY_PRIVATE_H

#include "engine/control/place_text.h"
#include "engine/scheduler/scheduler_state.h"

/* Where a part is, as far as nodes have told. */
typedef struct {
    uint32_t table, part;
    bool has_primary;
    uint32_t primary, primary_node;
    uint64_t best; /* the greatest position of a replica */
    uint32_t n_replicas;
    struct {
        uint32_t server, node;
        uint64_t position;
    } replicas[PLACE_MOST_SERVERS];
} Found;

struct Recovery {
    uint32_t step; /* that nodes do */
    uint32_t node; /* that was lost last, whose place another process takes, or that parts
                        * leave */
    ControlCause cause;
    char *text;        /* how */
    bool *done;        /* by node number: this step */
    bool *told;        /* by node number: it waits for those that do the step */
    GArray *found;     /* of Found */
    GHashTable *index; /* where a part is in it: by table and part */
    char *places;      /* what follows from it; once maps are open, with replicas to be made */
    int64_t since_ms;
    uint64_t *ordered; /* by node number: replicas that it was to make, and has not told of. Those
                        * that a later loss has prevented count */
    uint64_t *awaited; /* the same, and they do not: each CLOSE prevents what it has not told of */
    GHashTable *moves; /* of PlaceMove, by table and part: what goes to a node that has joined: */
    uint32_t joined;   /* this node, if there are some, */
    uint32_t n_plans;  /* and how many plans there were since it came */
    bool *unplanned;   /* by node number: it has joined, and another node came, or was lost, before
                        * it had its share: it is to be planned for once more */
    bool all_leave;    /* in a HAND_OVER: nothing stays on nodes that parts leave */
    char *fault;       /* why nodes cannot be drained; NULL: they can, as far as is known */
};

static inline guint64 recovery_key(uint32_t table, uint32_t part)
{
    return (guint64)table << 32 | part;
}

/* Where the part is in `found`; a copy of a part is to take the place of another one. */
void recovery_note_index(Recovery *recovery, const Found *found, guint at);
void recovery_add_move(Recovery *recovery, const PlaceMove *move);

#endif
