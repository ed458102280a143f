/* Blocks, read ahead.
 *
 * A block is claimed, then fetched. Claiming reads its head, which says where the next block lies
 * and with which seed that one was checked. So claims come one after the other, under the lock,
 * and what is long, reading and checking the bytes, several threads do at a time.
 *
 * Why waits end: who asks waits for a block that another thread has claimed, which reads it as
 * who asks would have. For if nobody has claimed it, all blocks that were claimed have been given
 * back, and who asks has memory to claim it. Another thread waits for memory of its own that has no
 * block, or for its end, which comes with block_fetch_free at the latest.
 *
 * Threads: that of who asks, and up to BLOCK_FETCH_THREADS of its own. */
#include "io/store/block_fetch.h"

#include <pthread.h>
#include <rubato/error.h>
#include <unistd.h>
#include <zstd.h>

#include "io/huge_pages.h"
#include "io/net/link/checksum.h"
#include "io/net/processors.h"
#include "io/store/store_file.h"

/* Blocks that may be fetched and not yet given back. With two for each who fetches, threads waited
 * twenty to eighty times in a GB, and who asks had to wake them; with four they hardly wait. */
enum { SLOTS_EACH = 4, N_SLOTS = SLOTS_EACH * (BLOCK_FETCH_THREADS + 1) };

/* A file of fewer bytes is not worth threads. */
#define LONG_BYTES (2 * (uint64_t)BLOCK_FILE_MOST)

/* So much of a block is read and summed up at a time: what a cache of the second level still has.
 * Smaller pieces need too many calls of the kernel. A bare thread took 47 ms for a GB in one piece
 * each, and 42 in such pieces. */
#define PIECE_BYTES ((size_t)256 << 10)

typedef struct Reader Reader;

typedef struct {
    /* of who has claimed it, then of who asks */
    Reader *reader; /* which has claimed it */
    BlockHead head;
    uint64_t offset;
    uint64_t seed;
    unsigned char *bytes;
    GError *error;

    bool is_ready; /* guarded by lock */
} Slot;

/* A thread that reads. */
struct Reader {
    BlockFetch *fetch;

    /* of this thread: what it needs to unpack */
    unsigned char *stored;
    ZSTD_DCtx *context; /* NULL: nothing was packed yet */

    /* guarded by lock: memory for blocks that has no block. It stays with this thread, in whose
     * processor's cache it is, and what was given back last is taken first. */
    uint32_t n_spare;
    unsigned char *spare[SLOTS_EACH]; /* NULL: has yet to be found */
    bool waits;                       /* until there is some */
};

struct BlockFetch {
    /* immutable */
    StoreFile *file;
    uint32_t n_slots;
    unsigned char *memory; /* of all slots, in huge pages; NULL: each has its own */
    uint32_t n_threads;
    pthread_t threads[BLOCK_FETCH_THREADS];

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    Slot slots[N_SLOTS];
    uint64_t n_claimed; /* blocks */
    uint64_t n_given;   /* blocks that are in use no more */
    uint64_t offset;    /* of the next block to be claimed */
    uint64_t checksum;  /* of the block before it */
    bool at_end;        /* nothing more is to be claimed */
    bool stops;
    bool asker_waits;

    Reader readers[BLOCK_FETCH_THREADS + 1]; /* first that of who asks */

    /* of who asks */
    bool has_given; /* the block number n_given is in use */
};

bool block_fail_at(const char *path, uint64_t offset, GError **error, const char *what)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: the block at byte %" G_GUINT64_FORMAT " is damaged: %s", path, offset, what);
    return false;
}

static bool fail(const BlockFetch *fetch, const Slot *slot, const char *what, GError **error)
{
    return block_fail_at(fetch->file->path, slot->offset, error, what);
}

static bool fail_memory(const BlockFetch *fetch, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory to read it",
                fetch->file->path);
    return false;
}

const char *block_head_fault(const BlockHead *head)
{
    const uint32_t n = head->n_bytes, n_stored = head->n_stored_bytes;

    if (head->magic != BLOCK_MAGIC)
        return "it does not begin as blocks do";
    switch (head->kind) {
    case BLOCK_PLAIN:
        return n > 0 && n <= BLOCK_FILE_MOST && n_stored == n ? NULL : "its length cannot be";
    case BLOCK_ZSTD:
        return n <= BLOCK_FILE_MOST && n_stored > 0 && n_stored < n ? NULL : "its length cannot be";
    case BLOCK_END:
        return n == 0 && n_stored == sizeof(BlockEnd) ? NULL : "its length cannot be";
    default:
        return "it is of no known kind";
    }
}

/* ---- a block ---- */

static bool read_all(const BlockFetch *fetch, const Slot *slot, uint64_t offset, void *bytes,
                     size_t n, GError **error)
{
    size_t n_read;

    return fetch->file->ops->read(fetch->file, offset, bytes, n, &n_read, error) &&
           (n_read == n || fail(fetch, slot, "the file ends in it", error));
}

/* Reads the head of the next block, and checks it. */
static bool read_head(const BlockFetch *fetch, Slot *slot)
{
    if (!read_all(fetch, slot, slot->offset, &slot->head, sizeof slot->head, &slot->error))
        return false;

    const char *const fault = block_head_fault(&slot->head);

    return fault == NULL || fail(fetch, slot, fault, &slot->error);
}

static bool make_unpacker(Reader *reader, GError **error)
{
    if (reader->stored == NULL)
        reader->stored = g_try_malloc(BLOCK_FILE_MOST);
    if (reader->context == NULL)
        reader->context = ZSTD_createDCtx();
    return (reader->stored != NULL && reader->context != NULL) || fail_memory(reader->fetch, error);
}

static bool unpack(const Reader *reader, Slot *slot)
{
    const size_t n = ZSTD_decompressDCtx(reader->context, slot->bytes, BLOCK_FILE_MOST,
                                         reader->stored, slot->head.n_stored_bytes);

    return (!ZSTD_isError(n) && n == slot->head.n_bytes) ||
           fail(reader->fetch, slot, "it cannot be unpacked", &slot->error);
}

/* Reads and checks the stored bytes, piece by piece. */
static bool read_stored(const BlockFetch *fetch, Slot *slot, unsigned char *to)
{
    const BlockHead *const head = &slot->head;
    const uint64_t offset = slot->offset + sizeof *head;
    ChecksumPieces sum;

    checksum_begin(&sum, slot->seed);
    checksum_add(&sum, head, offsetof(BlockHead, checksum));
    for (size_t done = 0; done < head->n_stored_bytes;) {
        const size_t some = MIN(head->n_stored_bytes - done, PIECE_BYTES);

        if (!read_all(fetch, slot, offset + done, to + done, some, &slot->error))
            return false;
        checksum_add(&sum, to + done, some);
        done += some;
    }
    return checksum_end(&sum) == head->checksum ||
           fail(fetch, slot, "its checksum is that of other bytes", &slot->error);
}

/* Reads and checks the bytes of a block whose head is good. */
static bool read_bytes(Reader *reader, Slot *slot)
{
    const BlockFetch *const fetch = reader->fetch;
    const BlockHead *const head = &slot->head;
    const bool is_packed = head->kind == BLOCK_ZSTD;
    unsigned char *to;

    if (slot->bytes == NULL)
        slot->bytes = g_try_malloc(BLOCK_FILE_MOST);
    if (slot->bytes == NULL)
        return fail_memory(fetch, &slot->error);
    if (is_packed && !make_unpacker(reader, &slot->error))
        return false;
    to = is_packed ? reader->stored : slot->bytes;
    if (!read_stored(fetch, slot, to))
        return false;
    return !is_packed || unpack(reader, slot);
}

/* ---- claims ---- */

/* With the lock held, which is free while the bytes are read. False: there is nothing to claim. */
static bool fetch_one(Reader *reader)
{
    BlockFetch *const fetch = reader->fetch;
    Slot *const slot = &fetch->slots[fetch->n_claimed % fetch->n_slots];

    if (fetch->at_end || reader->n_spare == 0)
        return false;
    fetch->n_claimed++;
    slot->reader = reader;
    slot->bytes = reader->spare[--reader->n_spare];
    slot->is_ready = false;
    slot->offset = fetch->offset;
    slot->seed = fetch->checksum;
    if (read_head(fetch, slot)) {
        fetch->at_end = slot->head.kind == BLOCK_END;
        fetch->offset += sizeof slot->head + slot->head.n_stored_bytes;
        fetch->checksum = slot->head.checksum;
        pthread_mutex_unlock(&fetch->lock);
        (void)read_bytes(reader, slot); /* the slot has the error */
        pthread_mutex_lock(&fetch->lock);
    }
    fetch->at_end |= slot->error != NULL;
    slot->is_ready = true;
    if (fetch->asker_waits)
        pthread_cond_broadcast(&fetch->changed);
    return true;
}

static void *fetch_ahead(void *data)
{
    Reader *const reader = data;
    BlockFetch *const fetch = reader->fetch;

    pthread_mutex_lock(&fetch->lock);
    while (!fetch->stops && !fetch->at_end)
        if (!fetch_one(reader)) {
            reader->waits = true;
            pthread_cond_wait(&fetch->changed, &fetch->lock);
            reader->waits = false;
        }
    pthread_mutex_unlock(&fetch->lock);
    return NULL;
}

/* ---- who asks ---- */

/* More than there are processors beside that of who asks would only take turns with it. */
static uint32_t find_n_threads(void)
{
    const uint32_t n_processors = processors_count();

    return CLAMP(n_processors, 2, BLOCK_FETCH_THREADS + 1) - 1;
}

/* In huge pages: they take fewer faults, each of which may cost 13 us on a virtual machine, and
 * what is read is copied there a fifth faster. If there are none, each block looks for memory. */
static void share_memory(BlockFetch *fetch)
{
    fetch->memory = huge_pages_take(fetch->n_slots * (size_t)BLOCK_FILE_MOST);
    for (uint32_t i = 0; i < fetch->n_slots && fetch->memory != NULL; i++)
        fetch->readers[i / SLOTS_EACH].spare[i % SLOTS_EACH] =
            fetch->memory + i * (size_t)BLOCK_FILE_MOST;
}

static void init_readers(BlockFetch *fetch, uint32_t n_threads)
{
    fetch->n_slots = n_threads == 0 ? 1 : SLOTS_EACH * (n_threads + 1);
    for (uint32_t i = 0; i <= n_threads; i++) {
        fetch->readers[i].fetch = fetch;
        fetch->readers[i].n_spare = MIN(fetch->n_slots, SLOTS_EACH);
    }
    if (n_threads > 0)
        share_memory(fetch);
    /* With fewer it takes longer. */
    while (fetch->n_threads < n_threads &&
           pthread_create(&fetch->threads[fetch->n_threads], NULL, fetch_ahead,
                          &fetch->readers[fetch->n_threads + 1]) == 0)
        fetch->n_threads++;
}

BlockFetch *block_fetch_new(const char *path, uint64_t seed, uint64_t n_bytes, GError **error)
{
    return block_fetch_new_with(path, seed, n_bytes, find_n_threads(), error);
}

BlockFetch *block_fetch_new_with(const char *path, uint64_t seed, uint64_t n_bytes,
                                 uint32_t n_threads, GError **error)
{
    g_autoptr(BlockFetch) fetch = g_new0(BlockFetch, 1);
    uint64_t n_found;

    pthread_mutex_init(&fetch->lock, NULL);
    pthread_cond_init(&fetch->changed, NULL);
    fetch->checksum = seed;
    fetch->file = store_file_open(path, &n_found, error);
    if (fetch->file == NULL)
        return NULL;
    if (n_found != n_bytes) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: has %" G_GUINT64_FORMAT " bytes, and was written with %" G_GUINT64_FORMAT,
                    path, n_found, n_bytes);
        return NULL;
    }
    init_readers(fetch, n_bytes < LONG_BYTES ? 0 : MIN(n_threads, BLOCK_FETCH_THREADS));
    return g_steal_pointer(&fetch);
}

/* With the lock held. Fetches what comes next until this block is there. */
static void await_block(BlockFetch *fetch, const Slot *slot)
{
    while (!(fetch->n_given < fetch->n_claimed && slot->is_ready))
        if (!fetch_one(&fetch->readers[0])) {
            fetch->asker_waits = true;
            pthread_cond_wait(&fetch->changed, &fetch->lock);
            fetch->asker_waits = false;
        }
}

/* With the lock held. The thread that has read the block in use may read another one there. */
static void give_back(BlockFetch *fetch)
{
    Slot *const slot = &fetch->slots[fetch->n_given % fetch->n_slots];
    Reader *const reader = slot->reader;

    reader->spare[reader->n_spare++] = g_steal_pointer(&slot->bytes);
    fetch->n_given++;
    /* Waking costs about as much as a block, so it is done for several. */
    if (reader->waits && reader->n_spare * 2 >= SLOTS_EACH)
        pthread_cond_broadcast(&fetch->changed);
}

bool block_fetch_next(BlockFetch *fetch, FetchedBlock *block, GError **error)
{
    Slot *slot;

    pthread_mutex_lock(&fetch->lock);
    if (fetch->has_given)
        give_back(fetch);
    slot = &fetch->slots[fetch->n_given % fetch->n_slots];
    await_block(fetch, slot);
    pthread_mutex_unlock(&fetch->lock);
    fetch->has_given = true;
    *block = (FetchedBlock){ .head = slot->head, .offset = slot->offset, .bytes = slot->bytes };
    if (slot->error == NULL)
        return true;
    g_propagate_error(error, g_steal_pointer(&slot->error));
    return false;
}

static void clear_reader(Reader *reader)
{
    for (uint32_t i = 0; i < reader->n_spare && reader->fetch->memory == NULL; i++)
        g_free(reader->spare[i]);
    ZSTD_freeDCtx(reader->context);
    g_free(reader->stored);
}

void block_fetch_free(BlockFetch *fetch)
{
    if (fetch == NULL)
        return;
    pthread_mutex_lock(&fetch->lock);
    fetch->stops = true;
    pthread_cond_broadcast(&fetch->changed);
    pthread_mutex_unlock(&fetch->lock);
    for (uint32_t i = 0; i < fetch->n_threads; i++)
        pthread_join(fetch->threads[i], NULL);
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        g_clear_error(&fetch->slots[i].error);
        if (fetch->memory == NULL)
            g_free(fetch->slots[i].bytes);
    }
    for (uint32_t i = 0; i <= BLOCK_FETCH_THREADS; i++)
        clear_reader(&fetch->readers[i]);
    huge_pages_free(fetch->memory, fetch->n_slots * (size_t)BLOCK_FILE_MOST);
    store_file_close(fetch->file);
    pthread_cond_destroy(&fetch->changed);
    pthread_mutex_destroy(&fetch->lock);
    g_free(fetch);
}
