/* A ring of records in memory that two processes share: one writes, the other reads.
 *
 * A record is a packet, or a piece of one that is larger than RING_PIECE_BYTES. It becomes visible
 * all at once, when it is complete; so a writer that dies in the middle of one leaves nothing. Each
 * end keeps its own place to itself and believes nothing that stands in the shared memory: what it
 * reads there is checked against the ring before it is used, and an end that finds nonsense says
 * that the ring is broken.
 *
 * The memory is an anonymous file, sealed so that nobody can shrink it under the other's feet. It
 * is mapped twice in a row, so that records that go over the end of the ring lie in one piece.
 *
 * Threads: one at a time for each end. */
#ifndef RUBATO_IO_NET_TRANSPORT_SHM_SHM_RING_H
#define RUBATO_IO_NET_TRANSPORT_SHM_SHM_RING_H

#include <glib.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RING_LEAST_BYTES ((size_t)64 << 10)
#define RING_MOST_BYTES ((size_t)64 << 20)

/* The largest record of a ring of so many bytes. */
static inline size_t ring_piece_bytes(size_t capacity)
{
    return MIN(capacity / 8, (size_t)128 << 10);
}

typedef struct RingShared RingShared;

typedef struct {
    RingShared *shared;
    uint8_t *data;
    size_t capacity; /* a power of two */
} Ring;

typedef struct {
    Ring ring;
    uint64_t head; /* bytes written since the beginning */
    uint64_t tail; /* read, as of the last look */
    uint64_t rewind_at;
} RingWriter;

typedef struct {
    Ring ring;
    uint64_t tail; /* bytes read since the beginning */
    uint64_t head; /* written, as of the last look */
} RingReader;

/* A record in the ring. */
typedef struct {
    uint8_t *bytes; /* aligned to 16 */
    size_t size;
    uint64_t packet_bytes; /* of the packet that it is a piece of, or the whole */
} RingRecord;

typedef enum {
    RING_OK,
    RING_EMPTY,
    RING_FULL,
    RING_BROKEN, /* the other end has written what makes no sense */
} RingResult;

/* Anonymous memory of that size, zeroed, that can be neither shrunk nor grown; -1 with errno. */
int shm_memory_new(size_t size);

/* Maps memory that another process has made: NULL where it is not exactly of that size, or could
 * change it. */
void *shm_memory_map(int fd, size_t size);

/* A new ring of `capacity` bytes, a power of two; *fd is its memory. False with errno. */
bool ring_new(size_t capacity, RingWriter *writer, int *fd);

/* The other end of it. False where that is no such ring. */
bool ring_open(int fd, size_t capacity, RingReader *reader);

void ring_close(Ring *ring);

/* Writes the piece of a packet that begins at *at, as long as it may be, and moves *at behind it.
 * RING_FULL: there is no room, and the reader will be asked to tell when there is. */
RingResult ring_write(RingWriter *writer, const uint8_t *packet, size_t size, size_t *at);

/* The oldest record, which stays where it is until ring_release. RING_EMPTY: there is none. */
RingResult ring_read(RingReader *reader, RingRecord *record);

/* Whether ring_read would find something. */
bool ring_has_some(const RingReader *reader);

/* Done with the oldest record. */
void ring_release(RingReader *reader, const RingRecord *record);

/* Whether the writer waits to be told that there is room, and now is the time; then no more. */
bool ring_wants_telling(RingReader *reader);

#endif
