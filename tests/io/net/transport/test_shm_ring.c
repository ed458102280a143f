/* Rings in shared memory: the reader gets what the writer wrote, and does not trust what a faulty
 * or dying end leaves.
 *
 * Most cases have both ends of a ring in one thread. The other mapping shows what the other process
 * would see. */
#include "io/net/transport/shm/shm_ring.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/runner.h"

#define CAPACITY RING_LEAST_BYTES

typedef struct {
    RingWriter writer;
    RingReader reader;
    int fd;
} Pair;

static void open_pair(Pair *pair, size_t capacity)
{
    ck_assert(ring_new(capacity, &pair->writer, &pair->fd));
    ck_assert(ring_open(pair->fd, capacity, &pair->reader));
}

static void close_pair(Pair *pair)
{
    ring_close(&pair->writer.ring);
    ring_close(&pair->reader.ring);
    close(pair->fd);
}

static uint8_t byte_of(uint64_t packet, size_t i)
{
    return (uint8_t)(packet * 31 + i * 7 + (i >> 8));
}

static uint8_t *new_packet(uint64_t number, size_t size)
{
    uint8_t *const packet = g_malloc(size + 1);

    for (size_t i = 0; i < size; i++)
        packet[i] = byte_of(number, i);
    return packet;
}

/* Writes a packet as far as it fits; whether all of it did. */
static bool write_some(Pair *pair, uint64_t number, size_t size, size_t *at)
{
    g_autofree uint8_t *packet = new_packet(number, size);
    RingResult result;

    do
        result = ring_write(&pair->writer, packet, size, at);
    while (result == RING_OK && *at < size);
    ck_assert_int_ne(result, RING_BROKEN);
    return *at == size && result == RING_OK;
}

/* Reads a record, which must be of that packet from *at on. False: there is none. */
static bool read_some(Pair *pair, uint64_t number, size_t size, size_t *at)
{
    RingRecord record;
    const RingResult result = ring_read(&pair->reader, &record);

    ck_assert_int_ne(result, RING_BROKEN);
    if (result == RING_EMPTY)
        return false;
    ck_assert_uint_eq(record.packet_bytes, size);
    ck_assert_uint_le(record.size, size - *at);
    ck_assert_uint_eq((uintptr_t)record.bytes % 16, 0);
    for (size_t i = 0; i < record.size; i++)
        if (record.bytes[i] != byte_of(number, *at + i))
            ck_abort_msg("byte %zu of packet %u is wrong", *at + i, (unsigned)number);
    *at += record.size;
    ring_release(&pair->reader, &record);
    return true;
}

START_TEST(packets_of_all_sizes_come_out_as_they_went_in)
{
    GRand *const random = g_rand_new_with_seed(17);
    Pair pair;
    uint64_t written = 0, read = 0;
    size_t sizes[8], write_at = 0, read_at = 0;

    open_pair(&pair, CAPACITY);
    while (read < 500) {
        if (g_rand_boolean(random) && written < read + G_N_ELEMENTS(sizes)) {
            size_t *const size = &sizes[written % G_N_ELEMENTS(sizes)];
            if (write_at == 0)
                *size = (size_t)g_rand_int_range(random, 1, g_rand_boolean(random) ? 200 : 150000);
            if (write_some(&pair, written, *size, &write_at)) {
                written++;
                write_at = 0;
            }
        } else if (read_some(&pair, read, sizes[read % G_N_ELEMENTS(sizes)], &read_at) &&
                   read_at == sizes[read % G_N_ELEMENTS(sizes)]) {
            read++;
            read_at = 0;
        }
    }
    close_pair(&pair);
    g_rand_free(random);
}
END_TEST

START_TEST(full_ring_takes_no_more_and_tells_when_there_is_room)
{
    Pair pair;
    size_t at = 0;
    unsigned n = 0, n_read = 0;

    open_pair(&pair, CAPACITY);
    while (write_some(&pair, n, 1000, &at)) {
        n++;
        at = 0;
    }
    ck_assert_uint_gt(n, 50);
    ck_assert_uint_lt(n, CAPACITY / 1000);
    bool told = false;
    at = 0;
    ck_assert(read_some(&pair, n_read++, 1000, &at));
    ck_assert(!ring_wants_telling(&pair.reader)); /* not for so little room */
    for (at = 0; read_some(&pair, n_read, 1000, &at); at = 0, n_read++)
        told = ring_wants_telling(&pair.reader) || told;
    ck_assert(told);
    ck_assert_uint_eq(n_read, n);
    ck_assert(!ring_wants_telling(&pair.reader)); /* once */
    ck_assert(write_some(&pair, n, 1000, &at));
    close_pair(&pair);
}
END_TEST

/* _i: times 16 bytes that are free; a record of 16 takes 32 with its header. */
START_TEST(ring_is_filled_to_the_last_byte_and_not_beyond)
{
    const size_t most = ring_piece_bytes(CAPACITY), header = 16;
    const size_t last = most - header - 16 * (size_t)_i;
    Pair pair;
    size_t at = 0;

    open_pair(&pair, CAPACITY);
    for (unsigned i = 0; i < CAPACITY / most; i++) {
        ck_assert(write_some(&pair, i, i == 0 ? last : most - header, &at));
        at = 0;
    }
    ck_assert(!write_some(&pair, 99, 16, &at));
    ck_assert_uint_eq(at, 0);
    ck_assert(read_some(&pair, 0, last, &at)); /* and was not written over */
    close_pair(&pair);
}
END_TEST

START_TEST(little_traffic_stays_in_few_pages)
{
    Pair pair;
    size_t capacity = (size_t)4 << 20, at = 0;
    struct stat status;

    open_pair(&pair, capacity);
    for (unsigned i = 0; i < 100000; i++) {
        ck_assert(write_some(&pair, i, 100, &at));
        at = 0;
        ck_assert(read_some(&pair, i, 100, &at));
        at = 0;
    }
    ck_assert_int_eq(fstat(pair.fd, &status), 0);
    ck_assert_int_lt(status.st_blocks * 512, 256 << 10);
    close_pair(&pair);
}
END_TEST

/* A ring that is empty goes back to its beginning, and the rest of it is not free at first. */
START_TEST(large_records_find_room_after_the_ring_has_gone_back)
{
    enum { SIZE = 100000, N = 4 };
    Pair pair;
    size_t at = 0;
    struct stat status;

    open_pair(&pair, (size_t)4 << 20);
    for (unsigned i = 0; i < 40; i++) {
        const unsigned n = i % 2 == 0 ? 1 : N;

        for (unsigned k = 0; k < n; k++) {
            ck_assert(write_some(&pair, k, SIZE, &at));
            at = 0;
        }
        for (unsigned k = 0; k < n; k++) {
            ck_assert(read_some(&pair, k, SIZE, &at));
            at = 0;
        }
    }
    ck_assert_int_eq(fstat(pair.fd, &status), 0);
    ck_assert_int_lt(status.st_blocks * 512, 1 << 20);
    close_pair(&pair);
}
END_TEST

/* Nor is the ring taken back to its beginning over it. */
START_TEST(what_the_writer_needs_is_not_written_over)
{
    enum { BYTES = 1000, RECORD = 1024 };
    Pair pair;
    uint8_t *to;
    size_t n, at = 0;

    open_pair(&pair, CAPACITY);
    pair.writer.needed = 0;
    for (uint64_t i = 0; i < CAPACITY / RECORD; i++, at = 0) {
        ck_assert(write_some(&pair, i, BYTES, &at));
        at = 0;
        ck_assert(read_some(&pair, i, BYTES, &at));
    }
    ck_assert_int_eq(ring_reserve(&pair.writer, BYTES, 0, &to, &n), RING_NEEDED);
    ck_assert_int_eq(ring_reserve(&pair.writer, 8, 0, &to, &n), RING_NEEDED);
    pair.writer.needed = RECORD;
    ck_assert_int_eq(ring_reserve(&pair.writer, BYTES, 0, &to, &n), RING_OK);
    ck_assert_int_eq(ring_reserve(&pair.writer, BYTES + RECORD, 0, &to, &n), RING_NEEDED);
    pair.writer.needed = RING_NO_PLACE;
    ck_assert_int_eq(ring_reserve(&pair.writer, BYTES + RECORD, 0, &to, &n), RING_OK);

    /* here the writer would go back */
    for (uint64_t i = 0; i < 4; i++, at = 0) {
        ck_assert(write_some(&pair, i, BYTES, &at));
        at = 0;
        ck_assert(read_some(&pair, i, BYTES, &at));
    }
    const uint64_t head = pair.writer.head;
    pair.writer.needed = head - CAPACITY;
    ck_assert_int_eq(ring_reserve(&pair.writer, BYTES, 0, &to, &n), RING_NEEDED);
    ck_assert_uint_eq(pair.writer.head, head);
    close_pair(&pair);
}
END_TEST

START_TEST(record_that_is_not_complete_is_not_there)
{
    Pair pair;
    RingRecord record;
    size_t at = 0;

    open_pair(&pair, CAPACITY);
    /* What a writer has written before it dies, without publishing it. */
    memset(pair.writer.ring.data, 0xff, 1000);
    ck_assert_int_eq(ring_read(&pair.reader, &record), RING_EMPTY);
    ck_assert(!ring_has_some(&pair.reader));
    ck_assert(write_some(&pair, 1, 500, &at));
    at = 0;
    ck_assert(read_some(&pair, 1, 500, &at));
    close_pair(&pair);
}
END_TEST

START_TEST(writer_learns_what_its_reader_has_accepted)
{
    Pair pair;
    size_t at = 0;

    open_pair(&pair, CAPACITY);
    ck_assert_uint_eq(ring_accepted(&pair.writer), 0);
    ring_accept(&pair.reader, UINT64_MAX - 1);
    ck_assert_uint_eq(ring_accepted(&pair.writer), UINT64_MAX - 1);
    ck_assert(write_some(&pair, 1, 500, &at)); /* it is in no one's way */
    at = 0;
    ck_assert(read_some(&pair, 1, 500, &at));
    ck_assert_uint_eq(ring_accepted(&pair.writer), UINT64_MAX - 1);
    close_pair(&pair);
}
END_TEST

/* The shared page begins with head; the reader's tail is on the next line. */
static void set_head(Pair *pair, uint64_t head)
{
    memcpy(pair->writer.ring.shared, &head, sizeof head);
}

START_TEST(nonsense_in_the_shared_memory_is_found)
{
    static const struct {
        uint64_t head;
        uint32_t size, mark;
        uint64_t packet_bytes;
    } cases[] = {
        { CAPACITY + 16, 16, 0x52454350, 16 },  /* more than the ring holds */
        { 8, 0, 0, 0 },                         /* less than a header */
        { 64, 1, 0, 1 },                        /* no mark */
        { 64, 49, 0x52454350, 49 },             /* goes past head */
        { 64, UINT32_MAX, 0x52454350, 0 },      /* overflows */
        { 64, 32, 0x52454350, 31 },             /* larger than its packet */
        { 64, 0, 0x50494b53, 64 },              /* skips to head */
        { 64, 0, 0x50494b53, 0 },               /* skips nothing: for ever */
        { 64, 0, 0x50494b53, 8 },               /* to no place of a record */
        { 64, 0, 0x50494b53, UINT64_MAX - 15 }, /* back */
    };
    const uint32_t whole[] = { 0, 0x52454350, 0, 0 }; /* a record, for who goes back */
    Pair pair;
    RingRecord record;

    open_pair(&pair, CAPACITY);
    memcpy(pair.writer.ring.data + CAPACITY - sizeof whole, whole, sizeof whole);
    memcpy(pair.writer.ring.data, &cases[_i].size, 4);
    memcpy(pair.writer.ring.data + 4, &cases[_i].mark, 4);
    memcpy(pair.writer.ring.data + 8, &cases[_i].packet_bytes, 8);
    set_head(&pair, cases[_i].head);
    ck_assert_int_eq(ring_read(&pair.reader, &record), RING_BROKEN);
    close_pair(&pair);
}
END_TEST

START_TEST(reader_that_has_read_more_than_was_written_is_found)
{
    Pair pair;
    const uint64_t tail = 1 << 20;
    const uint8_t packet[CAPACITY / 16] = { 0 };
    RingResult result;

    open_pair(&pair, CAPACITY);
    memcpy((uint8_t *)pair.reader.ring.shared + 64, &tail, sizeof tail);
    do {
        size_t at = 0;
        result = ring_write(&pair.writer, packet, sizeof packet, &at);
    } while (result == RING_OK);
    ck_assert_int_eq(result, RING_BROKEN);
    close_pair(&pair);
}
END_TEST

/* What it says it has yet to read is more than the ring can hold. */
START_TEST(reader_that_goes_back_is_found)
{
    Pair pair;
    const uint8_t packet[CAPACITY / 16] = { 0 };
    RingResult result;
    size_t at = 0;

    open_pair(&pair, CAPACITY);
    for (; (result = ring_write(&pair.writer, packet, sizeof packet, &at)) == RING_OK; at = 0)
        ;
    ck_assert_int_eq(result, RING_FULL);
    const uint64_t tail = pair.writer.head - CAPACITY - CAPACITY / 2;
    memcpy((uint8_t *)pair.reader.ring.shared + 64, &tail, sizeof tail);
    ck_assert_int_eq(ring_write(&pair.writer, packet, sizeof packet, &at), RING_BROKEN);
    close_pair(&pair);
}
END_TEST

START_TEST(size_of_a_ring_is_a_power_of_two)
{
    static const size_t none[] = { CAPACITY / 2, CAPACITY + CAPACITY / 2, 2 * RING_MOST_BYTES };
    RingReader reader;
    RingWriter writer;
    struct stat status;
    int fd;

    ck_assert(ring_new(CAPACITY, &writer, &fd));
    ck_assert_int_eq(fstat(fd, &status), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(none); i++) {
        const int memory = shm_memory_new((size_t)status.st_size - CAPACITY + none[i]);
        ck_assert_int_ge(memory, 0);
        ck_assert(!ring_open(memory, none[i], &reader));
        close(memory);
    }
    ring_close(&writer.ring);
    close(fd);
}
END_TEST

START_TEST(only_sealed_memory_of_the_right_size_is_a_ring)
{
    RingReader reader;
    RingWriter writer;
    int fd;
    const int open_fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(open_fd, 0);
    ck_assert(ring_new(CAPACITY, &writer, &fd));
    struct stat status;
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_int_eq(ftruncate(open_fd, status.st_size), 0);
    ck_assert(!ring_open(open_fd, CAPACITY, &reader)); /* its owner could shrink it */
    ck_assert(!ring_open(fd, 2 * CAPACITY, &reader));
    ck_assert(!ring_open(fd, CAPACITY - 16, &reader));
    ck_assert(!ring_open(STDIN_FILENO, CAPACITY, &reader));
    ck_assert_int_ne(ftruncate(fd, 0), 0);
    ck_assert(ring_open(fd, CAPACITY, &reader));
    ring_close(&reader.ring);
    ring_close(&writer.ring);
    close(fd);
    close(open_fd);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("shm_ring");
    TCase *const ring = tcase_create("ring");

    tcase_add_test(ring, packets_of_all_sizes_come_out_as_they_went_in);
    tcase_add_test(ring, full_ring_takes_no_more_and_tells_when_there_is_room);
    tcase_add_loop_test(ring, ring_is_filled_to_the_last_byte_and_not_beyond, 0, 2);
    tcase_add_test(ring, little_traffic_stays_in_few_pages);
    tcase_add_test(ring, large_records_find_room_after_the_ring_has_gone_back);
    tcase_add_test(ring, what_the_writer_needs_is_not_written_over);
    tcase_add_test(ring, record_that_is_not_complete_is_not_there);
    tcase_add_test(ring, writer_learns_what_its_reader_has_accepted);
    tcase_add_loop_test(ring, nonsense_in_the_shared_memory_is_found, 0, 10);
    tcase_add_test(ring, reader_that_has_read_more_than_was_written_is_found);
    tcase_add_test(ring, reader_that_goes_back_is_found);
    tcase_add_test(ring, size_of_a_ring_is_a_power_of_two);
    tcase_add_test(ring, only_sealed_memory_of_the_right_size_is_a_ring);
    suite_add_tcase(suite, ring);
    return run_suite(suite);
}
