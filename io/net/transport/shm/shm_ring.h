/* A ring of records in memory that two processes share: one writes, the other reads.
 *
 * A record is a packet, or a piece of one that is larger than ring_piece_bytes(). It becomes
 * visible all at once, when it is complete; so a writer that dies in the middle of a record leaves
 * nothing. Each end keeps its own position in its own memory and does not trust the shared memory:
 * it checks against the ring what it reads there before it uses it. An end that finds a wrong value
 * says that the ring is broken.
 *
 * The memory is an anonymous file, sealed so that neither end can shrink it while the other uses
 * it. It is mapped twice in a row, so that a record that crosses the end of the ring is contiguous.
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
    uint64_t tail; /* bytes read, when last loaded */
    uint64_t rewind_at;
    uint64_t needed; /* records from this place on are not overwritten; RING_NO_PLACE: any are */
} RingWriter;

#define RING_NO_PLACE UINT64_MAX

typedef struct {
    Ring ring;
    uint64_t tail; /* bytes read since the beginning */
    uint64_t head; /* bytes written, when last loaded */
} RingReader;

/* A record in the ring. */
typedef struct {
    uint8_t *bytes; /* aligned to 16 */
    size_t size;
    uint64_t packet_bytes; /* of the whole packet, of which it may be a piece */
} RingRecord;

typedef enum {
    RING_OK,
    RING_EMPTY,
    RING_FULL,
    RING_BROKEN, /* the other end has written a wrong value */
    RING_NEEDED, /* there is room, but the writer still needs what lies there */
} RingResult;

/* Anonymous memory of that size, zeroed, that can be neither shrunk nor grown; -1 with errno. */
int shm_memory_new(size_t size);

/* Maps memory that another process has made. NULL if its size is another one, or could change. */
void *shm_memory_map(int fd, size_t size);

/* A new ring of `capacity` bytes, a power of two; *fd is its memory. False with errno. */
bool ring_new(size_t capacity, RingWriter *writer, int *fd);

/* The other end of it. False if the memory is no such ring. */
bool ring_open(int fd, size_t capacity, RingReader *reader);

void ring_close(Ring *ring);

/* Writes the piece of a packet that begins at *at, as long as it may be, and moves *at behind it.
 * RING_FULL: there is no room, and the reader has been asked to say when there is. */
RingResult ring_write(RingWriter *writer, const uint8_t *packet, size_t size, size_t *at);

/* The same in two steps, for a packet that does not lie in one place. ring_reserve finds room for a
 * piece of *n bytes, at the place `head` of the writer; the caller fills *to, and ring_commit makes
 * it visible. Nothing else is done with the writer between them. */
RingResult ring_reserve(RingWriter *writer, size_t size, size_t at, uint8_t **to, size_t *n);
void ring_commit(RingWriter *writer, size_t n);

/* The last number that the reader has given to ring_accept; 0: none. The other process may write
 * any number there. */
uint64_t ring_accepted(const RingWriter *writer);

/* The oldest record, which stays in place until ring_release. RING_EMPTY: there is none. */
RingResult ring_read(RingReader *reader, RingRecord *record);

/* Whether ring_read would find something. */
bool ring_has_some(const RingReader *reader);

/* The reader is done with the oldest record. */
void ring_release(RingReader *reader, const RingRecord *record);

/* Tells the writer a number: the packets up to this one need not come again. It costs a store; the
 * writer looks when it likes to. */
void ring_accept(RingReader *reader, uint64_t number);

/* Whether to tell the writer now that there is room, because it waits for that. It counts as told
 * afterwards. */
bool ring_wants_telling(RingReader *reader);

#endif
