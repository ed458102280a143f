/* Queues with one sender and one receiver at a time, which use their memory again.
 *
 * A queue is a chain of blocks. The worker appends behind `newest`. `taken` is the block that the
 * owner of the shard has taken last: what lies behind it is to be taken, what lies before it may be
 * used again, and the worker does so, from `oldest` on. So in the steady state nothing is
 * allocated, and no memory is given back by another thread than the one that took it.
 *
 * A worker's whole Adds, of all parts, have one such chain, in which each part has come to a block
 * of its own: a block is used again when all parts have gone on from it. An owner of one part takes
 * the keys that the part has; an owner of all parts takes an Add as it is. The Adds of a worker to
 * a part are so in two chains, and their numbers tell how the worker made them. An Add that is due
 * was appended before its owner looks; so the owner cannot see a later one of one chain and miss an
 * earlier one of the other.
 *
 * Orders. The release of a block's `next` pairs with the acquire of the owner, who so sees what the
 * block holds. The release of `taken` pairs with the worker's acquire: the owner is done with the
 * block before its memory is written again. Owners follow one another by the token of the actor.
 *
 * All Adds of a clock that has passed are seen: the worker appends them, then stores its clock
 * (tables/clocks.c); the thread that brings the node's clock has loaded it after that store, and
 * the owner handles this thread's message. */
#include "io/net/deferred_adds.h"

#include <assert.h>
#include <string.h>

#include "io/memory_room.h"

/* A push looks at so many blocks that may be used again. It frees those that are too small or much
 * too large, so that a time of large Adds leaves no memory behind. */
enum { MOST_LOOKED_AT = 2 };

/* Blocks up to SMALL_BYTES hold a multiple of a quarter of the power of two below, so that they fit
 * more often and waste little. */
#define LEAST_STEP_BYTES ((size_t)16)
#define SMALL_BYTES ((size_t)16 << 10)

/* What malloc has before a block. */
#define MALLOC_BYTES sizeof(size_t)

typedef struct Block Block;
struct Block {
    _Atomic(Block *) next;
    size_t n_bytes;  /* behind the block */
    uint64_t number; /* among all of the worker's, if there may be whole ones */
    RubatoRequest request;
};

typedef struct {
    /* the worker's */
    _Alignas(64) Block *newest;
    Block *oldest;
    uint64_t n_pushed; /* of the first part's queue of whole Adds: to all queues of the worker */

    /* the owner's; the worker reads it */
    _Alignas(64) _Atomic(Block *) taken;
} Queue;

/* Written by the owner, looked at by workers that wait for their turn. */
typedef struct {
    _Alignas(64) _Atomic uint64_t turn;
} PartTurn;

struct DeferredAdds {
    /* immutable */
    uint32_t n_parts, n_workers;
    const _Atomic uint64_t *clock;

    PartTurn *turns;
    Queue *queues; /* by part, then by worker */

    /* NULL unless Adds may be whole */
    RubatoKey *firsts; /* of the parts */
    Queue *whole; /* by worker, then by part: all `taken` of one are in the first part's chain */
};

/* All parts at once. */
#define ALL_PARTS UINT32_MAX

static Block *new_block(size_t n_bytes)
{
    Block *block = memory_try_malloc(sizeof *block + n_bytes);

    if (block == NULL)
        return NULL;
    atomic_init(&block->next, NULL);
    block->n_bytes = n_bytes;
    block->request.keys = (RubatoKeys){ .n = 0 };
    return block;
}

DeferredAdds *deferred_adds_new(uint32_t n_parts, uint32_t n_workers, const _Atomic uint64_t *clock)
{
    DeferredAdds *adds = g_new0(DeferredAdds, 1);
    const size_t n_queues = (size_t)n_parts * n_workers;

    *adds = (DeferredAdds){ .n_parts = n_parts,
                            .n_workers = n_workers,
                            .clock = clock,
                            .turns = g_aligned_alloc0(n_parts, sizeof(PartTurn), 64),
                            .queues = g_aligned_alloc0(n_queues, sizeof(Queue), 64) };
    for (uint32_t part = 0; part < n_parts; part++)
        atomic_init(&adds->turns[part].turn, 0);
    for (size_t i = 0; i < n_queues; i++) {
        Block *block = new_block(0);

        if (block == NULL) {
            deferred_adds_free(adds);
            return NULL;
        }
        adds->queues[i].newest = adds->queues[i].oldest = block;
        atomic_init(&adds->queues[i].taken, block);
    }
    return adds;
}

/* A worker's queues of whole Adds; the first has the chain. */
static Queue *whole_of(const DeferredAdds *adds, uint32_t worker)
{
    assert(worker < adds->n_workers);
    return &adds->whole[(size_t)worker * adds->n_parts];
}

static void free_chain(Block *block)
{
    for (Block *next; block != NULL; block = next) {
        /* relaxed: nobody else uses it any more */
        next = atomic_load_explicit(&block->next, memory_order_relaxed);
        g_free(block);
    }
}

static void free_whole(DeferredAdds *adds)
{
    if (adds->whole == NULL)
        return;
    for (uint32_t worker = 0; worker < adds->n_workers; worker++)
        free_chain(whole_of(adds, worker)->oldest);
    g_clear_pointer(&adds->whole, g_aligned_free);
}

bool deferred_adds_allow_whole(DeferredAdds *adds, const RubatoKey *firsts)
{
    const uint32_t n_parts = adds->n_parts;
    bool has_all = true;

    assert(adds->whole == NULL);
    adds->whole = g_aligned_alloc0((size_t)adds->n_workers * n_parts, sizeof(Queue), 64);
    for (uint32_t worker = 0; worker < adds->n_workers; worker++) {
        Queue *const queues = whole_of(adds, worker);
        Block *const block = new_block(0);

        has_all &= block != NULL;
        queues->newest = queues->oldest = block;
        for (uint32_t part = 0; part < n_parts; part++)
            atomic_init(&queues[part].taken, block);
    }
    if (has_all)
        adds->firsts = g_memdup2(firsts, n_parts * sizeof *firsts);
    else
        free_whole(adds);
    return has_all;
}

bool deferred_adds_may_be_whole(const DeferredAdds *adds)
{
    return adds->whole != NULL;
}

void deferred_adds_free(DeferredAdds *adds)
{
    if (adds == NULL)
        return;
    for (size_t i = 0; i < (size_t)adds->n_parts * adds->n_workers; i++)
        free_chain(adds->queues[i].oldest);
    free_whole(adds);
    g_aligned_free(adds->turns);
    g_aligned_free(adds->queues);
    g_free(adds->firsts);
    g_free(adds);
}

static Queue *queue_of(const DeferredAdds *adds, uint32_t part, uint32_t worker)
{
    assert(part < adds->n_parts && worker < adds->n_workers);
    return &adds->queues[(size_t)part * adds->n_workers + worker];
}

/* ---- the worker's side ---- */

static bool fits(const Block *block, size_t n_bytes)
{
    return block->n_bytes >= n_bytes &&
           (block->n_bytes <= SMALL_BYTES || block->n_bytes / 2 <= n_bytes);
}

/* Whether all who take from the chain have gone on from a block that they had come to or passed. */
static bool is_free(const Queue *takers, uint32_t n_takers, const Block *block)
{
    for (uint32_t i = 0; i < n_takers; i++)
        /* acquire: pairs with the release in note_taken */
        if (block == atomic_load_explicit(&takers[i].taken, memory_order_acquire))
            return false;
    return true;
}

static size_t round_up(size_t n_bytes)
{
    size_t step = LEAST_STEP_BYTES;

    if (n_bytes > 4 * LEAST_STEP_BYTES)
        step = (size_t)1 << (g_bit_storage(n_bytes - 1) - 3);
    return n_bytes > SMALL_BYTES ? n_bytes : (n_bytes + step - 1) & ~(step - 1);
}

static Block *take_block(Queue *queue, uint32_t n_takers, size_t n_bytes)
{
    n_bytes = round_up(n_bytes);
    for (int i = 0; i < MOST_LOOKED_AT; i++) {
        Block *const block = queue->oldest;

        if (!is_free(queue, n_takers, block))
            break;
        /* relaxed: this thread stored it */
        queue->oldest = atomic_load_explicit(&block->next, memory_order_relaxed);
        if (fits(block, n_bytes))
            return block;
        g_free(block);
    }
    return new_block(n_bytes);
}

static void copy_keys(RubatoKey *restrict keys, const RubatoKeys *from)
{
    if (from->at == NULL)
        memcpy(keys, from->keys, from->n * sizeof *keys);
    else
        for (size_t i = 0; i < from->n; i++)
            keys[i] = from->keys[from->at[i]];
}

static void copy_rows(unsigned char *restrict to, const RubatoKeys *keys,
                      const unsigned char *restrict rows, size_t row_bytes)
{
    if (keys->keys == NULL || keys->at == NULL)
        memcpy(to, rows, keys->n * row_bytes);
    else if (row_bytes == 4) /* the usual row of one float */
        for (size_t i = 0; i < keys->n; i++)
            memcpy(to + i * 4, rows + (size_t)keys->at[i] * 4, 4);
    else
        for (size_t i = 0; i < keys->n; i++)
            memcpy(to + i * row_bytes, rows + keys->at[i] * row_bytes, row_bytes);
}

/* Behind the block come the keys, then the input. This order aligns both. Returns what the block
 * takes; 0: no memory. Inline, for it is on the way of each Add. */
static inline __attribute__((always_inline)) size_t push(Queue *queue, uint32_t n_takers,
                                                         uint64_t number,
                                                         const RubatoRequest *request,
                                                         size_t row_bytes)
{
    const RubatoKeys *const from = &request->keys;
    const size_t key_bytes = from->keys == NULL ? 0 : from->n * sizeof(RubatoKey);
    Block *const block = take_block(queue, n_takers, key_bytes + from->n * row_bytes);

    if (block == NULL)
        return 0;
    RubatoKey *const keys = (RubatoKey *)(block + 1);
    unsigned char *const input = (unsigned char *)keys + key_bytes;

    block->number = number;
    block->request = (RubatoRequest){ .worker = request->worker,
                                      .clock = request->clock,
                                      .keys = { .first = from->first, .n = from->n },
                                      .input = input };
    if (from->keys != NULL) {
        block->request.keys.keys = keys;
        copy_keys(keys, from);
    }
    copy_rows(input, from, request->input, row_bytes);
    /* relaxed: the release below brings it with the block */
    atomic_store_explicit(&block->next, NULL, memory_order_relaxed);
    /* release: pairs with the acquire in first_of */
    atomic_store_explicit(&queue->newest->next, block, memory_order_release);
    queue->newest = block;
    return MALLOC_BYTES + sizeof *block + block->n_bytes;
}

size_t deferred_adds_push(DeferredAdds *adds, uint32_t part, const RubatoRequest *request,
                          size_t row_bytes)
{
    const uint64_t number = adds->whole == NULL ? 0 : whole_of(adds, request->worker)->n_pushed++;

    return push(queue_of(adds, part, request->worker), 1, number, request, row_bytes);
}

size_t deferred_adds_push_whole(DeferredAdds *adds, const RubatoRequest *request, size_t row_bytes)
{
    assert(request->keys.n <= DEFERRED_ADDS_MOST_WHOLE && request->keys.keys != NULL);
    Queue *const queues = whole_of(adds, request->worker);

    return push(queues, adds->n_parts, queues->n_pushed++, request, row_bytes);
}

/* The block is used again by the worker alone, and owners do not change its keys. */
RubatoKeys deferred_adds_last_keys(const DeferredAdds *adds, uint32_t worker, uint64_t clock)
{
    const Queue *const queue =
        adds->whole != NULL ? whole_of(adds, worker) : queue_of(adds, 0, worker);
    const Block *const last = queue->newest;
    const bool has_all = adds->whole != NULL || adds->n_parts == 1;

    if (!has_all || last->request.keys.n == 0 || last->request.clock != clock)
        return (RubatoKeys){ .n = 0 };
    return last->request.keys;
}

/* ---- the owner's side ---- */

static Block *first_of(Queue *queue)
{
    /* relaxed: only owners store it */
    Block *const taken = atomic_load_explicit(&queue->taken, memory_order_relaxed);

    /* acquire: pairs with the release in deferred_adds_push */
    return atomic_load_explicit(&taken->next, memory_order_acquire);
}

static void note_taken(Queue *queue, Block *block)
{
    /* release: pairs with the acquire in is_free */
    atomic_store_explicit(&queue->taken, block, memory_order_release);
}

/* Takes those keys of a whole Add that a part has. */
static void take_selection(const DeferredAdds *adds, uint32_t part, const RubatoRequest *whole,
                           void (*take)(void *user, RubatoRequest *request), void *user)
{
    const RubatoKey *const keys = whole->keys.keys;
    const RubatoKey first = adds->firsts[part];
    const RubatoKey last = part + 1 < adds->n_parts ? adds->firsts[part + 1] - 1 : UINT64_MAX;
    uint32_t at[DEFERRED_ADDS_MOST_WHOLE];
    RubatoRequest request = *whole;
    uint32_t n = 0;

    for (uint32_t i = 0; i < whole->keys.n; i++) {
        at[n] = i;
        n += keys[i] >= first && keys[i] <= last;
    }
    request.keys.at = at;
    request.keys.n = n;
    if (n > 0)
        take(user, &request);
}

/* take_until where Adds may be whole. */
static __attribute__((noinline)) Block *take_both_until(
    DeferredAdds *adds, uint32_t part, uint32_t worker, uint64_t clock,
    void (*take)(void *user, RubatoRequest *request), void *user)
{
    Queue *const cut = queue_of(adds, part, worker), *const whole = &whole_of(adds, worker)[part];

    for (;;) {
        Block *const next_cut = first_of(cut), *const next_whole = first_of(whole);
        const bool is_whole =
            next_whole != NULL && (next_cut == NULL || next_whole->number < next_cut->number);
        Block *const first = is_whole ? next_whole : next_cut;

        if (first == NULL || first->request.clock > clock)
            return first;
        if (is_whole)
            take_selection(adds, part, &first->request, take, user);
        else
            take(user, &first->request);
        note_taken(is_whole ? whole : cut, first);
    }
}

/* take_until for all parts, which have come equally far, where all Adds up to the clock are whole.
 */
static __attribute__((noinline)) Block *take_whole_until(
    DeferredAdds *adds, uint32_t worker, uint64_t clock,
    void (*take)(void *user, RubatoRequest *request), void *user)
{
    Queue *const queues = whole_of(adds, worker);
    Block *first;

    while ((first = first_of(queues)) != NULL && first->request.clock <= clock) {
        take(user, &first->request);
        for (uint32_t part = 0; part < adds->n_parts; part++)
            note_taken(&queues[part], first);
    }
    return first;
}

/* Takes a worker's Adds to a part, or to ALL_PARTS, up to a clock. Returns the first one that is
 * left, or NULL. */
static Block *take_until(DeferredAdds *adds, uint32_t part, uint32_t worker, uint64_t clock,
                         void (*take)(void *user, RubatoRequest *request), void *user)
{
    if (part == ALL_PARTS)
        return take_whole_until(adds, worker, clock, take, user);
    if (adds->whole != NULL)
        return take_both_until(adds, part, worker, clock, take, user);
    Queue *const queue = queue_of(adds, part, worker);
    Block *first;

    while ((first = first_of(queue)) != NULL && first->request.clock <= clock) {
        take(user, &first->request);
        note_taken(queue, first);
    }
    return first;
}

/* The owner writes at most the deltas of a block; the release of `taken` orders this, too, before
 * the worker's use of the memory. */
void deferred_adds_look(DeferredAdds *adds, uint32_t part, uint64_t clock,
                        void (*look)(void *user, RubatoRequest *request), void *user)
{
    assert(adds->whole == NULL);
    for (uint32_t worker = 0; worker < adds->n_workers; worker++) {
        Block *block = first_of(queue_of(adds, part, worker));

        while (block != NULL && block->request.clock < clock) {
            look(user, &block->request);
            /* acquire: as in first_of */
            block = atomic_load_explicit(&block->next, memory_order_acquire);
        }
    }
}

void deferred_adds_take_of(DeferredAdds *adds, uint32_t part, uint32_t worker, uint64_t clock,
                           void (*take)(void *user, RubatoRequest *request), void *user)
{
    take_until(adds, part, worker, clock, take, user);
}

uint64_t deferred_adds_clock(const DeferredAdds *adds)
{
    /* acquire: pairs with the exchange in clocks_advance, whose thread has seen the workers' clocks
     * and thus their Adds */
    return atomic_load_explicit(adds->clock, memory_order_acquire);
}

uint64_t deferred_adds_turn_of(const DeferredAdds *adds, uint64_t clock, uint32_t worker)
{
    uint64_t first;

    /* A division would take longer than all else that is done for a turn without Adds. */
    if (__builtin_mul_overflow(clock, (uint64_t)adds->n_workers, &first) ||
        first > UINT64_MAX - worker)
        return UINT64_MAX;
    return first + worker;
}

/* The clock and the worker of a turn. */
static inline uint64_t clock_of(const DeferredAdds *adds, uint64_t turn, uint32_t *worker)
{
    if (adds->n_workers == 1) { /* no division: see deferred_adds_turn_of */
        *worker = 0;
        return turn;
    }
    *worker = (uint32_t)(turn % adds->n_workers);
    return turn / adds->n_workers;
}

uint64_t deferred_adds_turn(const DeferredAdds *adds, uint32_t part)
{
    /* relaxed: a hint; owners have the token's order */
    return atomic_load_explicit(&adds->turns[part].turn, memory_order_relaxed);
}

/* Takes the Adds of the turns from `turn` on that belong to its clock. Returns the next turn for
 * which there are Adds, `end` at most. */
static uint64_t take_clock(DeferredAdds *adds, uint32_t part, uint64_t turn, uint64_t end,
                           void (*take)(void *user, RubatoRequest *request), void *user)
{
    uint32_t begin;
    const uint64_t clock = clock_of(adds, turn, &begin);
    uint64_t next = UINT64_MAX;

    for (uint32_t worker = begin; worker < adds->n_workers && turn < end; worker++, turn++) {
        const Block *left = take_until(adds, part, worker, clock, take, user);

        if (left != NULL)
            next = MIN(next, left->request.clock);
    }
    if (begin > 0 || turn == end) /* not all queues were looked at */
        return turn;
    next = deferred_adds_turn_of(adds, next, 0);
    return MAX(turn, MIN(end, next));
}

void deferred_adds_take(DeferredAdds *adds, uint32_t part, uint64_t end,
                        void (*take)(void *user, RubatoRequest *request), void *user)
{
    uint64_t turn = deferred_adds_turn(adds, part);

    if (turn >= end)
        return;
    while (turn < end)
        turn = take_clock(adds, part, turn, end, take, user);
    /* relaxed: see deferred_adds_turn */
    atomic_store_explicit(&adds->turns[part].turn, end, memory_order_relaxed);
}

/* Whether all parts have come equally far with a worker's Adds, and the next ones up to the clock
 * are whole. */
static bool are_whole(const DeferredAdds *adds, uint32_t worker, uint64_t clock)
{
    Queue *const queues = whole_of(adds, worker);
    /* relaxed, both: only owners store it */
    const Block *const taken = atomic_load_explicit(&queues->taken, memory_order_relaxed);

    for (uint32_t part = 0; part < adds->n_parts; part++) {
        const Block *const cut = first_of(queue_of(adds, part, worker));

        if (atomic_load_explicit(&queues[part].taken, memory_order_relaxed) != taken ||
            (cut != NULL && cut->request.clock <= clock))
            return false;
    }
    return true;
}

/* The same for all workers who have a turn from `turn` on, before `end`. */
static bool all_are_whole(const DeferredAdds *adds, uint64_t turn, uint64_t end)
{
    const uint64_t n = MIN(end - turn, adds->n_workers); /* further turns are of the same */
    uint32_t worker;
    const uint64_t clock = clock_of(adds, end - 1, &worker);
    bool all = true;

    for (uint64_t i = 0; i < n && all; i++) {
        all = are_whole(adds, worker, clock);
        worker = worker == 0 ? adds->n_workers - 1 : worker - 1;
    }
    return all;
}

/* The parts may have had turns without Adds apart. So their Adds may be equally far where the turns
 * are not: the lowest turn counts. */
bool deferred_adds_take_whole(DeferredAdds *adds, uint64_t end,
                              void (*take)(void *user, RubatoRequest *request), void *user)
{
    uint64_t turn = deferred_adds_turn(adds, 0);

    for (uint32_t part = 1; part < adds->n_parts; part++) {
        const uint64_t other = deferred_adds_turn(adds, part);

        turn = MIN(turn, other);
    }
    if (turn >= end)
        return true;
    if (!all_are_whole(adds, turn, end))
        return false;
    while (turn < end)
        turn = take_clock(adds, ALL_PARTS, turn, end, take, user);
    for (uint32_t part = 0; part < adds->n_parts; part++)
        if (deferred_adds_turn(adds, part) < end)
            /* relaxed: see deferred_adds_turn */
            atomic_store_explicit(&adds->turns[part].turn, end, memory_order_relaxed);
    return true;
}
