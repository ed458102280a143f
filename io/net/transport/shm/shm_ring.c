/* Rings in shared memory.
 *
 * DESIGN NOTE
 *
 * `head` and `tail` count bytes since the beginning; each is written by one end. When a record is
 * complete, the writer stores head; this is a release that the reader's load acquires. When the
 * reader is done with a record, it stores tail; this is a release that the writer's load acquires
 * before it overwrites the record.
 *
 * Both ends may go to sleep: the reader when the ring is empty; the writer, or rather its packets,
 * when the ring is full. An end that is about to sleep sets a flag and checks the ring again. An
 * end that makes progress possible for the other end first moves head or tail and then checks the
 * flag. All four operations are sequentially consistent, so at least one of the two ends sees the
 * other's change. The reader's flag is in its bell (ShmBell in transport_shm.h); this is why head
 * is stored and loaded sequentially consistently. The writer's flag is `wants_room`. The reader
 * checks it in ring_wants_telling, which it calls each time it has found the ring empty, and so
 * each time before it sleeps. It also checks the flag when half of the ring is free, so that the
 * writer need not run out of room. */
#define _GNU_SOURCE
#include "io/net/transport/shm/shm_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct RingShared {
    /* stored by the writer */
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint32_t wants_room; /* cleared by the reader */

    /* stored by the reader */
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint64_t accepted;
};

/* In front of each record. */
typedef struct {
    uint32_t size; /* of the data that follows */
    uint32_t mark;
    uint64_t packet_bytes;
} RecordHeader;

enum {
    SHARED_BYTES = 65536, /* the RingShared, on a page of its own, however large pages are */
    MARK = 0x52454350,
    SKIP_MARK = 0x50494b53,  /* packet_bytes is the distance to the next record */
    REWIND_BYTES = 64 << 10, /* a ring with little traffic returns to its beginning after these */
    RETRY_BYTES = 2 << 10,   /* until the next attempt, if the ring was not empty */
    REWIND_RECORDS = 4,      /* records as large as the next one that fit at once afterwards */
};

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

G_STATIC_ASSERT(sizeof(RingShared) <= SHARED_BYTES);
G_STATIC_ASSERT(sizeof(RecordHeader) == 16);
G_STATIC_ASSERT(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2);

int shm_memory_new(size_t size)
{
    const int fd = memfd_create("rubato", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd == -1)
        return -1;
    if (ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
    const int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

static bool is_sealed(int fd, size_t size)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == (off_t)size &&
           (fcntl(fd, F_GET_SEALS) & SEALS) == SEALS;
}

void *shm_memory_map(int fd, size_t size)
{
    if (!is_sealed(fd, size))
        return NULL;
    void *const memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The shared page, the ring, and the ring once more. */
static bool map_ring(int fd, size_t capacity, Ring *ring)
{
    const int both = PROT_READ | PROT_WRITE;
    uint8_t *const base = mmap(NULL, SHARED_BYTES + 2 * capacity, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return false;
    if (mmap(base, SHARED_BYTES + capacity, both, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        mmap(base + SHARED_BYTES + capacity, capacity, both, MAP_SHARED | MAP_FIXED, fd,
             SHARED_BYTES) == MAP_FAILED) {
        const int failure = errno;
        munmap(base, SHARED_BYTES + 2 * capacity);
        errno = failure;
        return false;
    }
    *ring = (Ring){ .shared = (RingShared *)(void *)base,
                    .data = base + SHARED_BYTES,
                    .capacity = capacity };
    return true;
}

static bool is_capacity(size_t capacity)
{
    return capacity >= RING_LEAST_BYTES && capacity <= RING_MOST_BYTES &&
           (capacity & (capacity - 1)) == 0;
}

bool ring_new(size_t capacity, RingWriter *writer, int *fd)
{
    Ring ring;

    g_assert(is_capacity(capacity));
    const int memory = shm_memory_new(SHARED_BYTES + capacity);
    if (memory == -1)
        return false;
    if (!map_ring(memory, capacity, &ring)) {
        const int failure = errno;
        close(memory);
        errno = failure;
        return false;
    }
    *writer = (RingWriter){ .ring = ring, .rewind_at = REWIND_BYTES, .needed = RING_NO_PLACE };
    *fd = memory;
    return true;
}

bool ring_open(int fd, size_t capacity, RingReader *reader)
{
    Ring ring;

    if (!is_capacity(capacity) || !is_sealed(fd, SHARED_BYTES + capacity) ||
        !map_ring(fd, capacity, &ring))
        return false;
    *reader = (RingReader){ .ring = ring };
    return true;
}

void ring_close(Ring *ring)
{
    if (ring->shared != NULL)
        munmap(ring->shared, SHARED_BYTES + 2 * ring->capacity);
    *ring = (Ring){ 0 };
}

static size_t record_bytes(size_t size)
{
    return sizeof(RecordHeader) + ((size + 15) & ~(size_t)15);
}

static uint8_t *at_place(const Ring *ring, uint64_t place)
{
    return ring->data + (size_t)(place & (ring->capacity - 1));
}

/* ---- the writer ---- */

/* Whether the next bytes are written to where the writer still needs what lies there. */
static bool would_overwrite(const RingWriter *writer, size_t bytes)
{
    const uint64_t end = writer->head + bytes;

    return end > writer->ring.capacity && end - writer->ring.capacity > writer->needed;
}

/* Goes back to the beginning of the ring now and then, if the ring is empty. So the little traffic
 * of idle nodes stays in few pages, and the rest of the ring is never touched. The rest counts as
 * taken until the reader has released the next record. So the writer goes back no sooner than there
 * is room for some records at the beginning; otherwise it would have to wait after the first. */
static void rewind_ring(RingWriter *writer, size_t piece)
{
    const size_t capacity = writer->ring.capacity;
    const size_t place = (size_t)(writer->head & (capacity - 1));
    const RecordHeader skip = { .mark = SKIP_MARK, .packet_bytes = capacity - place };

    if (writer->head < writer->rewind_at || place < REWIND_RECORDS * record_bytes(piece))
        return;
    /* Acquire: pairs with the reader's stores of tail. The reader is done with what will be
     * overwritten. */
    writer->tail = atomic_load_explicit(&writer->ring.shared->tail, memory_order_acquire);
    if (writer->tail != writer->head || would_overwrite(writer, sizeof skip)) {
        writer->rewind_at = writer->head + RETRY_BYTES;
        return;
    }
    memcpy(at_place(&writer->ring, writer->head), &skip, sizeof skip);
    writer->head += capacity - place; /* visible with the record that follows */
    writer->rewind_at = writer->head + REWIND_BYTES;
}

/* Whether so many bytes are free. Loads the reader's tail if necessary. */
static RingResult find_room(RingWriter *writer, size_t bytes)
{
    RingShared *const shared = writer->ring.shared;
    const size_t capacity = writer->ring.capacity;

    for (unsigned look = 0;; look++) {
        if (writer->head - writer->tail > capacity)
            return RING_BROKEN;
        if (capacity - (size_t)(writer->head - writer->tail) >= bytes)
            return RING_OK;
        if (look == 2)
            return RING_FULL;
        if (look == 1) /* sequentially consistent, as is the load after it: see the top */
            atomic_store(&shared->wants_room, 1);
        writer->tail = atomic_load(&shared->tail);
    }
}

RingResult ring_reserve(RingWriter *writer, size_t size, size_t at, uint8_t **to, size_t *n)
{
    const size_t most = ring_piece_bytes(writer->ring.capacity);
    const size_t piece = MIN(size - at, most);
    const RecordHeader header = { .size = (uint32_t)piece, .mark = MARK, .packet_bytes = size };

    rewind_ring(writer, piece);
    const RingResult result = find_room(writer, record_bytes(piece));
    if (result != RING_OK)
        return result;
    if (would_overwrite(writer, record_bytes(piece)))
        return RING_NEEDED;
    uint8_t *const record = at_place(&writer->ring, writer->head);
    memcpy(record, &header, sizeof header);
    *to = record + sizeof header;
    *n = piece;
    return RING_OK;
}

void ring_commit(RingWriter *writer, size_t n)
{
    writer->head += record_bytes(n);
    /* The record is complete and becomes visible. Sequentially consistent for the bell's sake. */
    atomic_store(&writer->ring.shared->head, writer->head);
}

RingResult ring_write(RingWriter *writer, const uint8_t *packet, size_t size, size_t *at)
{
    uint8_t *to;
    size_t n;

    const RingResult result = ring_reserve(writer, size, *at, &to, &n);
    if (result != RING_OK)
        return result;
    memcpy(to, packet + *at, n);
    *at += n;
    ring_commit(writer, n);
    return RING_OK;
}

uint64_t ring_accepted(const RingWriter *writer)
{
    /* Relaxed, as the store: the number orders no other memory. */
    return atomic_load_explicit(&writer->ring.shared->accepted, memory_order_relaxed);
}

/* ---- the reader ---- */

RingResult ring_read(RingReader *reader, RingRecord *record)
{
    RecordHeader header;
    uint8_t *from;

    if (reader->head == reader->tail) {
        reader->head = atomic_load(&reader->ring.shared->head); /* for the bell's sake, too */
        if (reader->head == reader->tail)
            return RING_EMPTY;
    }
    for (;;) {
        const uint64_t there = reader->head - reader->tail;
        if (there > reader->ring.capacity || there < sizeof header)
            return RING_BROKEN;
        from = at_place(&reader->ring, reader->tail);
        memcpy(&header, from, sizeof header); /* one copy: the writer may change the original */
        if (header.mark == MARK && header.size <= ring_piece_bytes(reader->ring.capacity) &&
            record_bytes(header.size) <= there && header.size <= header.packet_bytes)
            break;
        /* A record follows a skip. */
        if (header.mark != SKIP_MARK || header.packet_bytes >= there ||
            header.packet_bytes < sizeof header || header.packet_bytes % sizeof header != 0)
            return RING_BROKEN;
        reader->tail += header.packet_bytes;
    }
    *record = (RingRecord){ .bytes = from + sizeof header,
                            .size = header.size,
                            .packet_bytes = header.packet_bytes };
    return RING_OK;
}

bool ring_has_some(const RingReader *reader)
{
    /* Relaxed: ring_read looks again. */
    return reader->head != reader->tail ||
           atomic_load_explicit(&reader->ring.shared->head, memory_order_relaxed) != reader->tail;
}

void ring_release(RingReader *reader, const RingRecord *record)
{
    reader->tail += record_bytes(record->size);
    /* Release: all reads of the record come before it. The order of tail and wants_room matters
     * only in ring_wants_telling, which stores tail again. */
    atomic_store_explicit(&reader->ring.shared->tail, reader->tail, memory_order_release);
}

void ring_accept(RingReader *reader, uint64_t number)
{
    atomic_store_explicit(&reader->ring.shared->accepted, number, memory_order_relaxed);
}

bool ring_wants_telling(RingReader *reader)
{
    RingShared *const shared = reader->ring.shared;
    const bool is_empty = reader->head == reader->tail;

    if (is_empty)
        atomic_store(&shared->tail, reader->tail); /* sequentially consistent: see the top */
    else if (atomic_load_explicit(&shared->wants_room, memory_order_relaxed) == 0 ||
             reader->head - reader->tail > reader->ring.capacity / 2)
        return false;
    /* The load is sequentially consistent, see the top. The exchange is relaxed: it reads the value
     * that the load has seen, or a later one. */
    return atomic_load(&shared->wants_room) != 0 &&
           atomic_exchange_explicit(&shared->wants_room, 0, memory_order_relaxed) != 0;
}
