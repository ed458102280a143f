/* Adds that no server needs before their clock has passed.
 *
 * Under a model that applies the Adds of a clock together, nobody sees an Add before the node's
 * clock is above the Add's. So if all workers are in this process, an Add is not sent: the worker
 * keeps it here, and whoever brings a clock to a part has its server take what the clock has made
 * due. The worker shares no memory with others for its Adds, and if it has them taken itself, the
 * deltas and the rows stay in its processor's cache.
 *
 * A table in a task has a queue for each part and worker, and for each part a turn: the number of
 * the next pair of a clock and a worker, clocks first, whose Adds are to be taken. Adds are taken
 * in the order of the pairs, so a sum of floats does not depend on who brought which clock.
 *
 * Adds may be whole, which are not cut for the parts: who owns all parts takes such an Add at once.
 *
 * Threads: deferred_adds_push, _push_whole and _last_keys a worker, for itself; deferred_adds_take
 * the owner of the part's shard, deferred_adds_take_whole one of all shards; the others any. */
#ifndef RUBATO_IO_NET_DEFERRED_ADDS_H
#define RUBATO_IO_NET_DEFERRED_ADDS_H

#include <rubato/request.h>
#include <stdatomic.h>

typedef struct DeferredAdds DeferredAdds;

/* clock: the node's, which is the lowest of its workers'. Each worker stores its own clock after
 * the Adds of the clocks before. NULL if there is no memory. (transfer full) */
DeferredAdds *deferred_adds_new(uint32_t n_parts, uint32_t n_workers,
                                const _Atomic uint64_t *clock);
void deferred_adds_free(DeferredAdds *adds);

/* A worker adds: keys, input, worker and clock of the request are copied. Returns how many bytes of
 * memory that takes until the Add is taken. 0: no memory. */
size_t deferred_adds_push(DeferredAdds *adds, uint32_t part, const RubatoRequest *request,
                          size_t row_bytes);

/* Before any is pushed: Adds may be whole. firsts: the first key of each part; the parts are one
 * behind the other. False: no memory, and they may not. */
bool deferred_adds_allow_whole(DeferredAdds *adds, const RubatoKey *firsts);
bool deferred_adds_may_be_whole(const DeferredAdds *adds);

/* As deferred_adds_push, for all parts. The request has a list of so many keys at most, which the
 * parts have. */
#define DEFERRED_ADDS_MOST_WHOLE 1024u
size_t deferred_adds_push_whole(DeferredAdds *adds, const RubatoRequest *request, size_t row_bytes);

/* The keys of the worker's last Add, if that is of this clock and goes to all parts, or the table
 * has one part; else none. They stay until the worker pushes again. */
RubatoKeys deferred_adds_last_keys(const DeferredAdds *adds, uint32_t worker, uint64_t clock);

/* The node's clock: all Adds of lower clocks are here. */
uint64_t deferred_adds_clock(const DeferredAdds *adds);

/* The turn of a worker's Adds of a clock. A worker has the number of its rank. */
uint64_t deferred_adds_turn_of(const DeferredAdds *adds, uint64_t clock, uint32_t worker);

/* The turn of a part. For other threads than the owner it is a hint, which orders no memory. */
uint64_t deferred_adds_turn(const DeferredAdds *adds, uint32_t part);

/* Takes all Adds of the turns before `end`, in their order; the node's clock has passed theirs.
 * Each request stays as it is while `take` has it. */
void deferred_adds_take(DeferredAdds *adds, uint32_t part, uint64_t end,
                        void (*take)(void *user, RubatoRequest *request), void *user);

/* deferred_adds_take for all parts. False: not all of the Adds are whole, or they have been taken
 * from some parts; none was taken. */
bool deferred_adds_take_whole(DeferredAdds *adds, uint64_t end,
                              void (*take)(void *user, RubatoRequest *request), void *user);

/* Shows all Adds of the clocks before `clock`, which the node's clock has passed, worker by worker.
 * They stay as they are until the owner takes them, so it may keep the requests until then, and
 * change their deltas. None may be whole. */
void deferred_adds_look(DeferredAdds *adds, uint32_t part, uint64_t clock,
                        void (*look)(void *user, RubatoRequest *request), void *user);

/* Takes a worker's own Adds up to a clock, whatever the turn is. */
void deferred_adds_take_of(DeferredAdds *adds, uint32_t part, uint32_t worker, uint64_t clock,
                           void (*take)(void *user, RubatoRequest *request), void *user);

#endif
