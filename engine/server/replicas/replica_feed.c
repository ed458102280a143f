/* A part with replicas: the primary's knowledge, what a holder has had.
 *
 * Answers wait in the order in which the primary handled their requests, so what each one needs is
 * no less than what the one before it needs: those that may leave are always the first ones.
 *
 * Threads: see the header. */
#include "engine/server/replicas/replica_feed.h"

#include <glib.h>

#include "engine/server/replicas/add_answers.h"
#include "models/handlers/call_records.h"

void replica_feed_init(ReplicaFeed *feed, uint64_t n_inputs)
{
    *feed = (ReplicaFeed){ .n_inputs = n_inputs };
}

static FedReplica *find_replica(ReplicaFeed *feed, uint32_t server)
{
    for (uint32_t i = 0; i < feed->n_replicas; i++)
        if (feed->replicas[i].server == server)
            return &feed->replicas[i];
    return NULL;
}

static bool add_replica(ReplicaFeed *feed, const FedReplica *replica)
{
    if (feed->n_replicas == REPLICA_FEED_MOST || find_replica(feed, replica->server) != NULL ||
        replica->has > feed->n_inputs)
        return false;
    feed->replicas[feed->n_replicas++] = *replica;
    return true;
}

bool replica_feed_add(ReplicaFeed *feed, uint32_t server, uint32_t made, uint64_t has)
{
    return add_replica(feed,
                       &(FedReplica){ .server = server, .made = made, .counts = true, .has = has });
}

bool replica_feed_add_copy(ReplicaFeed *feed, uint32_t server, uint32_t made,
                           size_t most_behind_bytes)
{
    return add_replica(
        feed,
        &(FedReplica){ .server = server, .made = made, .most_behind_bytes = most_behind_bytes });
}

void replica_feed_tell_more(ReplicaFeed *feed, uint32_t server, bool is_told)
{
    find_replica(feed, server)->is_told = is_told;
}

const FedReplica *replica_feed_find_told(const ReplicaFeed *feed)
{
    for (uint32_t i = 0; i < feed->n_replicas; i++)
        if (feed->replicas[i].is_told)
            return &feed->replicas[i];
    return NULL;
}

const FedReplica *replica_feed_find(const ReplicaFeed *feed, uint32_t server, uint32_t made)
{
    const FedReplica *const replica = find_replica((ReplicaFeed *)(uintptr_t)feed, server);

    return replica != NULL && replica->made == made ? replica : NULL;
}

/* If much is under way to one that is being made, answers wait for it, although nothing depends on
 * it yet: so those who are answered send no more until it has had this. It says so behind the next
 * slice of its image, or behind all of it; or it is dropped. */
static bool is_waited_for(const FedReplica *replica)
{
    return replica->counts || replica->behind_bytes > replica->most_behind_bytes;
}

uint64_t replica_feed_safe(const ReplicaFeed *feed)
{
    uint64_t safe = feed->n_inputs;

    for (uint32_t i = 0; i < feed->n_replicas; i++)
        if (is_waited_for(&feed->replicas[i]))
            safe = MIN(safe, feed->replicas[i].has);
    return safe;
}

static HeldAnswer *release(ReplicaFeed *feed)
{
    const uint64_t safe = replica_feed_safe(feed);
    HeldAnswer *const first = feed->held;
    HeldAnswer *last = NULL;

    while (feed->held != NULL && feed->held->needs <= safe) {
        last = feed->held;
        feed->held = last->next;
    }
    if (last == NULL)
        return NULL;
    last->next = NULL;
    return first;
}

void replica_feed_send_slice(ReplicaFeed *feed, uint32_t server)
{
    FedReplica *const replica = find_replica(feed, server);

    replica->has_slice_under_way = true;
    replica->before_slice = feed->n_inputs;
    replica->before_slice_bytes = replica->behind_bytes;
}

HeldAnswer *replica_feed_hears_slice(ReplicaFeed *feed, uint32_t server, uint32_t made)
{
    FedReplica *const replica = find_replica(feed, server);

    if (replica == NULL || replica->made != made || !replica->has_slice_under_way)
        return NULL;
    replica->has_slice_under_way = false;
    replica->has = replica->before_slice;
    replica->behind_bytes -= replica->before_slice_bytes;
    return release(feed);
}

void replica_feed_hears_whole(ReplicaFeed *feed, uint32_t server, uint32_t made)
{
    FedReplica *const replica = find_replica(feed, server);

    if (replica != NULL && replica->made == made && replica->counts)
        replica->is_whole = true;
}

HeldAnswer *replica_feed_drop(ReplicaFeed *feed, uint32_t server)
{
    FedReplica *const dropped = find_replica(feed, server);

    if (dropped == NULL)
        return NULL;
    *dropped = feed->replicas[--feed->n_replicas];
    return release(feed);
}

bool replica_feed_hold(ReplicaFeed *feed, HeldAnswer *answer)
{
    if (replica_feed_safe(feed) >= feed->n_inputs)
        return false;
    answer->needs = feed->n_inputs;
    answer->next = NULL;
    if (feed->held == NULL)
        feed->held = answer;
    else
        feed->last_held->next = answer;
    feed->last_held = answer;
    return true;
}

PositionVerdict replica_feed_hears(ReplicaFeed *feed, uint32_t server, uint32_t made, uint64_t has,
                                   HeldAnswer **released)
{
    FedReplica *const replica = find_replica(feed, server);
    const bool counted = replica != NULL && replica->counts;

    *released = NULL;
    if (has > feed->n_inputs)
        return POSITION_WRONG;
    if (replica == NULL || replica->made != made)
        return POSITION_HEARD;
    replica->counts = true;
    if (has > replica->has) {
        replica->has = has;
        *released = release(feed);
    }
    return counted ? POSITION_HEARD : POSITION_COUNTS;
}

HeldAnswer *replica_feed_take_held(ReplicaFeed *feed)
{
    HeldAnswer *const held = feed->held;

    feed->held = NULL;
    return held;
}

void replica_feed_put_held(ReplicaFeed *feed, HeldAnswer *held)
{
    feed->held = held;
    for (; held != NULL; held = held->next)
        feed->last_held = held;
}

/* ---- a holder of the part ---- */

InputSequences *input_sequences_new(uint32_t n_senders)
{
    InputSequences *const sequences =
        g_try_malloc0(sizeof *sequences + n_senders * sizeof sequences->senders[0]);

    if (sequences != NULL)
        sequences->n_senders = n_senders;
    return sequences;
}

void input_sequences_free(InputSequences *sequences)
{
    if (sequences == NULL)
        return;
    call_records_free(sequences->records);
    add_answers_free(sequences->answers);
    g_free(sequences);
}

InputVerdict replica_take(uint64_t *position, uint64_t number)
{
    if (number <= *position)
        return INPUT_HAD;
    if (number != *position + 1)
        return INPUT_MISSING;
    *position = number;
    return INPUT_NEXT;
}

bool input_sequences_take(InputSequences *sequences, uint32_t sender, uint64_t sequence)
{
    if (sequence <= sequences->senders[sender].sequence)
        return false;
    sequences->senders[sender].sequence = sequence;
    return true;
}

bool input_sequences_take_call(InputSequences *sequences, uint32_t sender, uint64_t serial)
{
    if (serial <= sequences->senders[sender].call)
        return false;
    sequences->senders[sender].call = serial;
    return true;
}

static uint64_t advance(InputProgress *it, uint64_t clock, uint64_t n)
{
    const uint64_t before = it->n_now > 0 && it->now_clock == clock ? it->n_now : 0;
    uint64_t n_had = 0;

    it->now_clock = clock;
    it->n_now = before + n;
    if (it->n > 0 && clock < it->clock)
        return n;
    if (clock == it->clock && it->n > before)
        n_had = it->n - before < n ? it->n - before : n;
    if (n_had < n) {
        it->clock = clock;
        it->n = it->n_now;
    }
    return n_had;
}

uint64_t input_sequences_advance(InputSequences *sequences, uint32_t sender, uint64_t clock,
                                 uint64_t n)
{
    return advance(&sequences->senders[sender].changes, clock, n);
}

uint64_t input_sequences_announce(InputSequences *sequences, uint32_t sender, uint64_t iteration,
                                  uint64_t n)
{
    return advance(&sequences->senders[sender].announced, iteration, MAX(n, 1));
}

static void begin_again(InputProgress *it)
{
    it->now_clock = it->n_now = 0;
}

uint64_t input_sequences_return(InputSequences *sequences, uint32_t sender)
{
    InputSender *const it = &sequences->senders[sender];

    begin_again(&it->changes);
    begin_again(&it->announced);
    return it->changes.n > 0 ? it->changes.clock + 1 : 0;
}
