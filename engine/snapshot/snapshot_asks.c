/* The snapshots that this node has asked for. An ask is in the list until its call ends; whoever
 * takes it out of the list ends it.
 *
 * Runs on any thread. The lock is not held while the scheduler is told, which may answer within the
 * call, or while a call ends. */
#include "engine/snapshot/snapshot_asks.h"

void snapshot_asks_init(SnapshotAsks *asks,
                        void (*tell_scheduler)(void *user, const Control *control), void *user)
{
    *asks = (SnapshotAsks){ .tell_scheduler = tell_scheduler, .user = user };
    pthread_mutex_init(&asks->lock, NULL);
}

void snapshot_asks_clear(SnapshotAsks *asks)
{
    pthread_mutex_destroy(&asks->lock);
}

static void end_ask(SnapshotAsk *ask, const ControlOutcome *outcome, uint64_t written)
{
    GError *failure = NULL;
    const bool ok = control_check(outcome->code, outcome->text, &failure);

    Call *const cut = g_steal_pointer(&ask->cut);

    ask->failure = failure;
    ask->written = written;
    if (cut != NULL)
        call_end_part(cut, CALL_OK, 0);
    call_end_part(ask->call, ok ? CALL_OK : CALL_FAILED, 0);
}

void snapshot_asks_begin(SnapshotAsks *asks, SnapshotAsk *ask)
{
    const uint64_t seed = ask->seed;
    const uint32_t epoch = ask->epoch;
    g_autofree char *spec = g_strdup(ask->spec); /* the ask may end before it has been told */
    uint64_t number;
    bool is_broken;

    pthread_mutex_lock(&asks->lock);
    is_broken = asks->is_broken;
    ask->number = number = ++asks->n;
    ask->next = asks->first;
    if (!is_broken)
        asks->first = ask;
    pthread_mutex_unlock(&asks->lock);
    if (is_broken)
        end_ask(ask, &(ControlOutcome){ CONTROL_CODE(RUBATO_ERROR_CANCELLED), "the run has ended" },
                0);
    else
        asks->tell_scheduler(
            asks->user,
            &(Control){
                .kind = CONTROL_SNAPSHOT_ASK,
                .snapshot = { .number = number, .epoch = epoch, .seed = seed, .spec = spec } });
}

/* Taken under the lock, since what was broken ends the ask on another thread. */
void snapshot_asks_hear_cut(SnapshotAsks *asks, uint64_t number)
{
    SnapshotAsk *ask;
    Call *cut = NULL;

    pthread_mutex_lock(&asks->lock);
    for (ask = asks->first; ask != NULL && ask->number != number;)
        ask = ask->next;
    if (ask != NULL)
        cut = g_steal_pointer(&ask->cut);
    pthread_mutex_unlock(&asks->lock);
    if (cut != NULL)
        call_end_part(cut, CALL_OK, 0);
}

void snapshot_asks_hear_end(SnapshotAsks *asks, const ControlSnapshot *end)
{
    SnapshotAsk **at, *ask;

    pthread_mutex_lock(&asks->lock);
    for (at = &asks->first; *at != NULL && (*at)->number != end->number;)
        at = &(*at)->next;
    ask = *at;
    if (ask != NULL)
        *at = ask->next;
    pthread_mutex_unlock(&asks->lock);
    if (ask != NULL)
        end_ask(ask, &end->outcome, end->written);
}

void snapshot_asks_break(SnapshotAsks *asks, uint32_t code, const char *text)
{
    SnapshotAsk *first;

    pthread_mutex_lock(&asks->lock);
    first = asks->first;
    asks->first = NULL;
    asks->is_broken = true;
    pthread_mutex_unlock(&asks->lock);
    for (SnapshotAsk *ask = first, *next; ask != NULL; ask = next) {
        next = ask->next;
        end_ask(ask, &(ControlOutcome){ code, text }, 0);
    }
}
