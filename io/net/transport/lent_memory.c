/* Blocks of memory that processes of a host read from one another: see lent_memory.h. */
#include "io/net/transport/lent_memory.h"

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/net/transport/shm/shm_ring.h"

/* In front of the blocks; on pages of their own, however large pages are. */
enum { LINE_BYTES = 64, USES_BYTES = 64 << 10 };

enum { LOOKED_AT = 4 }; /* blocks of which it is asked whether they came back, at each take */

#define ALL_BYTES (USES_BYTES + LENT_BLOCKS * LENT_BLOCK_BYTES)

/* Of one block, in the shared memory. */
typedef struct {
    _Alignas(LINE_BYTES) _Atomic uint32_t returned[LENT_READERS]; /* the last use that has ended */
} BlockState;

G_STATIC_ASSERT(sizeof(BlockState) * LENT_BLOCKS <= USES_BYTES);

typedef struct {
    uint32_t node;
    uint64_t incarnation;
    bool is_sent, is_out;
} LentReader;

typedef struct {
    uint32_t use;
    uint32_t n_readers;
    LentReader readers[LENT_READERS];
} Loan;

struct LentMemory {
    int fd;
    BlockState *states;
    uint8_t *blocks;

    pthread_mutex_t lock;
    /* guarded by lock */
    Loan loans[LENT_BLOCKS];
    uint32_t free[LENT_BLOCKS]; /* the next one to be lent is the last */
    uint32_t n_free;
    uint32_t lent[LENT_BLOCKS]; /* from the oldest to the newest */
    uint32_t n_lent;
};

struct BorrowedMemory {
    _Atomic uint32_t refs;
    BlockState *states;
    const uint8_t *blocks;
};

/* ---- this process's ---- */

LentMemory *lent_memory_new(void)
{
    const int fd = shm_memory_new(ALL_BYTES);

    if (fd == -1)
        return NULL;
    void *const bytes = shm_memory_map(fd, ALL_BYTES);
    if (bytes == NULL) {
        close(fd);
        return NULL;
    }
    LentMemory *const memory = g_new0(LentMemory, 1);
    memory->fd = fd;
    memory->states = bytes;
    memory->blocks = (uint8_t *)bytes + USES_BYTES;
    pthread_mutex_init(&memory->lock, NULL);
    for (uint32_t i = 0; i < LENT_BLOCKS; i++)
        memory->free[i] = LENT_BLOCKS - 1 - i;
    memory->n_free = LENT_BLOCKS;
    return memory;
}

void lent_memory_free(LentMemory *memory)
{
    if (memory == NULL)
        return;
    munmap(memory->states, ALL_BYTES);
    close(memory->fd);
    pthread_mutex_destroy(&memory->lock);
    g_free(memory);
}

int lent_memory_fd(const LentMemory *memory)
{
    return memory->fd;
}

/* Block i of those that are lent is free again. The lock is held. */
static void take_in(LentMemory *memory, uint32_t i)
{
    memory->free[memory->n_free++] = memory->lent[i];
    memory->n_lent--;
    for (; i < memory->n_lent; i++)
        memory->lent[i] = memory->lent[i + 1];
}

/* Whether all that read the block are done with it. The lock is held. */
static bool is_back(LentMemory *memory, uint32_t block)
{
    Loan *const loan = &memory->loans[block];
    bool is_out = false;

    for (uint32_t i = 0; i < loan->n_readers; i++) {
        LentReader *const reader = &loan->readers[i];

        /* acquire: what the other process has read comes before what is written there next */
        if (reader->is_out && atomic_load_explicit(&memory->states[block].returned[i],
                                                   memory_order_acquire) == loan->use)
            reader->is_out = false;
        is_out |= reader->is_out;
    }
    return !is_out;
}

/* Looks at the oldest loans: most come back in their order. The lock is held. */
static void look(LentMemory *memory, uint32_t n)
{
    for (uint32_t i = 0, looked = 0; i < memory->n_lent && looked < n; looked++)
        if (is_back(memory, memory->lent[i]))
            take_in(memory, i);
        else
            i++;
}

/* The lock is held. */
static void take_from_the_gone(LentMemory *memory, LentIsGone is_gone, void *user)
{
    for (uint32_t i = 0; i < memory->n_lent;) {
        Loan *const loan = &memory->loans[memory->lent[i]];

        for (uint32_t k = 0; k < loan->n_readers; k++) {
            LentReader *const reader = &loan->readers[k];

            if (reader->is_sent && is_gone(user, reader->node, reader->incarnation))
                reader->is_out = false;
        }
        if (is_back(memory, memory->lent[i]))
            take_in(memory, i);
        else
            i++;
    }
}

static LentPlace add_reader(Loan *loan, uint32_t block, uint32_t node, uint64_t incarnation)
{
    const uint32_t reader = loan->n_readers++;

    loan->readers[reader] =
        (LentReader){ .node = node, .incarnation = incarnation, .is_out = true };
    return (LentPlace){ (uint16_t)block, (uint16_t)reader, loan->use };
}

void *lent_memory_take(LentMemory *memory, uint32_t node, uint64_t incarnation, LentIsGone is_gone,
                       void *user, LentPlace *place)
{
    void *values = NULL;

    pthread_mutex_lock(&memory->lock);
    look(memory, LOOKED_AT);
    if (memory->n_free == 0)
        look(memory, LENT_BLOCKS);
    if (memory->n_free == 0)
        take_from_the_gone(memory, is_gone, user);
    if (memory->n_free > 0) {
        const uint32_t block = memory->free[--memory->n_free];
        const uint32_t use = memory->loans[block].use + 1;

        Loan *const loan = &memory->loans[block];

        loan->use = use;
        loan->n_readers = 0;
        *place = add_reader(loan, block, node, incarnation);
        memory->lent[memory->n_lent++] = block;
        values = memory->blocks + block * LENT_BLOCK_BYTES;
    }
    pthread_mutex_unlock(&memory->lock);
    return values;
}

bool lent_memory_share(LentMemory *memory, LentPlace first, uint32_t node, uint64_t incarnation,
                       LentPlace *place)
{
    pthread_mutex_lock(&memory->lock);
    Loan *const loan = &memory->loans[first.block];
    const bool has_room = loan->n_readers < LENT_READERS;
    if (has_room)
        *place = add_reader(loan, first.block, node, incarnation);
    pthread_mutex_unlock(&memory->lock);
    return has_room;
}

void lent_memory_sent(LentMemory *memory, LentPlace place)
{
    pthread_mutex_lock(&memory->lock);
    memory->loans[place.block].readers[place.reader].is_sent = true;
    pthread_mutex_unlock(&memory->lock);
}

void lent_memory_take_back(LentMemory *memory, LentPlace place)
{
    uint32_t i = 0;

    pthread_mutex_lock(&memory->lock);
    memory->loans[place.block].readers[place.reader].is_out = false;
    while (i < memory->n_lent && memory->lent[i] != place.block)
        i++;
    if (i < memory->n_lent && is_back(memory, place.block))
        take_in(memory, i);
    pthread_mutex_unlock(&memory->lock);
}

bool lent_memory_has_room(LentMemory *memory)
{
    pthread_mutex_lock(&memory->lock);
    if (memory->n_free == 0)
        look(memory, LENT_BLOCKS);
    const bool has_room = memory->n_free > 0;
    pthread_mutex_unlock(&memory->lock);
    return has_room;
}

/* ---- another process's ---- */

BorrowedMemory *borrowed_memory_new(int fd)
{
    void *const bytes = shm_memory_map(fd, ALL_BYTES);

    if (bytes == NULL)
        return NULL;
    BorrowedMemory *const memory = g_new0(BorrowedMemory, 1);
    atomic_init(&memory->refs, 1);
    memory->states = bytes;
    memory->blocks = (const uint8_t *)bytes + USES_BYTES;
    /* a mistake here cannot change what another process sends; without this it is only likelier */
    (void)mprotect((uint8_t *)bytes + USES_BYTES, ALL_BYTES - USES_BYTES, PROT_READ);
    return memory;
}

BorrowedMemory *borrowed_memory_ref(BorrowedMemory *memory)
{
    /* relaxed: the caller has a reference */
    atomic_fetch_add_explicit(&memory->refs, 1, memory_order_relaxed);
    return memory;
}

void borrowed_memory_unref(BorrowedMemory *memory)
{
    /* release and acquire: the thread that unmaps it does so behind all others' reads */
    if (memory == NULL || atomic_fetch_sub_explicit(&memory->refs, 1, memory_order_acq_rel) != 1)
        return;
    munmap(memory->states, ALL_BYTES);
    g_free(memory);
}

const void *borrowed_memory_at(const BorrowedMemory *memory, LentPlace place, size_t n_bytes)
{
    if (place.block >= LENT_BLOCKS || place.reader >= LENT_READERS || n_bytes > LENT_BLOCK_BYTES)
        return NULL;
    return memory->blocks + place.block * LENT_BLOCK_BYTES;
}

void borrowed_memory_return(BorrowedMemory *memory, LentPlace place)
{
    _Atomic uint32_t *const returned = &memory->states[place.block].returned[place.reader];
    uint32_t last = atomic_load_explicit(returned, memory_order_relaxed); /* the exchange looks */

    /* If this process was taken for lost, a later use may have ended: its end stays. The exchange
     * is a release: this process's reads come before. */
    while ((int32_t)(place.use - last) > 0 &&
           !atomic_compare_exchange_weak_explicit(returned, &last, place.use, memory_order_release,
                                                  memory_order_relaxed))
        continue;
}
