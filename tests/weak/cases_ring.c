/* Rings: a reader sees complete records, no record is overwritten before it was read, and a
 * sleeping reader or writer is woken.
 *
 * The ring is a small one: eight records fill it. Writer and reader use the same mapping. */
#include "io/net/transport/shm/transport_shm.h"
#include "tests/weak/cases.h"

enum { RECORDS = 8, CAPACITY = 1024, BYTES = CAPACITY / RECORDS - 16, SHARED = 4096 };

static RingWriter writer;
static RingReader reader;
static ShmBell bell;
static int bell_fd, room_fd;
static uint64_t n_written, n_read; /* each the one end's */

static void begin(void)
{
    static RingWriter made;
    int fd;

    if (made.ring.shared == NULL) {
        weak_expect(ring_new(RING_LEAST_BYTES, &made, &fd));
        made.ring.capacity = CAPACITY;
    }
    memset(made.ring.shared, 0, SHARED);
    writer = made;
    reader = (RingReader){ .ring = made.ring };
    atomic_init(&bell.asleep, 0);
    bell_fd = eventfd(0, EFD_NONBLOCK);
    room_fd = eventfd(0, EFD_NONBLOCK);
    n_written = n_read = 0;
}

static void ring(int fd)
{
    const uint64_t one = 1;

    weak_expect(write(fd, &one, sizeof one) == sizeof one);
}

static void sleep_until_rung(int fd)
{
    struct pollfd polled = { .fd = fd, .events = POLLIN };
    uint64_t n;

    (void)poll(&polled, 1, -1);
    (void)!read(fd, &n, sizeof n);
}

static void write_one(void)
{
    uint64_t packet[BYTES / sizeof(uint64_t)] = { n_written++ };
    size_t at = 0;

    while (ring_write(&writer, (const uint8_t *)packet, sizeof packet, &at) == RING_FULL)
        sleep_until_rung(room_fd);
    if (shm_bell_take(&bell))
        ring(bell_fd);
}

static bool read_one(void)
{
    RingRecord record;
    uint64_t packet[BYTES / sizeof(uint64_t)];

    switch (ring_read(&reader, &record)) {
    case RING_OK:
        weak_expect(record.size == sizeof packet);
        memcpy(packet, record.bytes, sizeof packet);
        weak_expect(packet[0] == n_read++);
        ring_release(&reader, &record);
        if (reader.head != reader.tail && ring_wants_telling(&reader))
            ring(room_fd);
        return true;
    case RING_EMPTY:
        return false;
    default:
        weak_fail("the ring is broken");
    }
}

/* As shm_receive. */
static void read_or_sleep(void)
{
    if (read_one())
        return;
    if (ring_wants_telling(&reader))
        ring(room_fd);
    shm_bell_set(&bell);
    if (!read_one()) {
        if (ring_wants_telling(&reader))
            ring(room_fd);
        sleep_until_rung(bell_fd);
    }
    (void)shm_bell_clear(&bell);
}

static void *write_records(void *n)
{
    for (uintptr_t i = 0; i < (uintptr_t)n; i++)
        write_one();
    return NULL;
}

static void read_all(uint64_t n)
{
    while (n_read < n)
        read_or_sleep();
}

static void reader_sleeps(void)
{
    begin();
    const unsigned other = weak_start("writer", write_records, (void *)2);
    read_all(2);
    weak_join(other);
}

/* The ring is full when the two begin. */
static void writer_sleeps(void)
{
    begin();
    write_records((void *)RECORDS);
    const unsigned other = weak_start("writer", write_records, (void *)3);
    read_all(RECORDS + 3);
    weak_join(other);
}

/* If the ring is empty, the writer begins again at its start, where the reader has just read. */
static void writer_rewinds(void)
{
    begin();
    write_records((void *)4); /* it goes back where there is room for as many */
    weak_expect(read_one() && read_one());
    writer.rewind_at = 0;
    const unsigned other = weak_start("writer", write_records, (void *)3);
    read_all(7);
    weak_join(other);
}

const WeakCase ring_cases[] = {
    { "ring_reader_sleeps", reader_sleeps },
    { "ring_writer_sleeps", writer_sleeps },
    { "ring_writer_rewinds", writer_rewinds },
    { NULL, NULL },
};
