/* Publishes the versions of a directory.
 *
 * The thread tells the newest number when it hears of a version, when a reader comes, and each
 * second. It looks into the directory each time: so versions that others write there are told, too,
 * and those that are gone are not. It keeps nothing else but the files that are being fetched
 * (held_versions.h), and a publisher that comes back goes on.
 *
 * What a reader may do: nothing that it asks for is a name of a file, and a version is named by its
 * number and its seed. Answers that it does not read are dropped beyond a bound; it asks again.
 * Messages that are none are dropped.
 *
 * Why each wait ends: the thread waits for a message, for its descriptor, or for the next second.
 * Closing waits until all readers that were heard of have the newest version; a reader counts for
 * LAGGING_MS after it was heard of last, or after the newest version came, and the whole wait is
 * over after MOST_LINGER_MS.
 *
 * Threads: run is the thread's, with all the sockets; the rest as in the header. */
#include "io/stream/zmq/zmq_publisher.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/store/snapshot_folder.h"
#include "io/stream/zmq/held_versions.h"
#include "io/stream/zmq/stream_message.h"
#include "io/stream/zmq/zmq_stream.h"

#define TELL_MS 1000
#define LAGGING_MS 3000
#define MOST_LINGER_MS 10000
#define MOST_READERS 1024
#define MOST_AT_ONCE 64 /* messages between two looks at the rest */

/* A version, as it was when its manifest was read. */
typedef struct {
    ListedVersion listed;
    struct timespec changed;
    ino_t inode;
} KnownVersion;

typedef struct {
    uint64_t has;
    int64_t heard_ms;
} ReaderState;

struct RubatoStreamWriter {
    /* immutable */
    ZmqStreamAddress address;
    char *directory;
    int event; /* told, or ends */
    void *context, *news, *answers;
    pthread_t thread;

    gint ends; /* atomic */

    /* the thread's */
    GArray *versions; /* of KnownVersion, ascending */
    HeldVersions *held;
    GHashTable *readers; /* of ReaderState, by their routing ids (GBytes) */
    uint64_t told;       /* the number of the newest one that was told */
    int64_t told_ms;
    int64_t newest_ms; /* when that had come */
};

/* ---- the versions ---- */

static bool look_at(const char *directory, uint64_t number, struct stat *found)
{
    g_autofree char *folder = snapshot_folder_whole(directory, number);
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);

    return stat(path, found) == 0;
}

static const KnownVersion *find_known(const GArray *versions, uint64_t number)
{
    for (guint i = versions->len; i-- > 0;) {
        const KnownVersion *const known = &g_array_index(versions, KnownVersion, i);

        if (known->listed.number <= number)
            return known->listed.number == number ? known : NULL;
    }
    return NULL;
}

/* False: it is gone, or damaged. */
static bool know(const RubatoStreamWriter *writer, uint64_t number, KnownVersion *version)
{
    const KnownVersion *const before = find_known(writer->versions, number);
    struct stat found;

    if (!look_at(writer->directory, number, &found))
        return false;
    if (before != NULL && before->inode == found.st_ino &&
        before->changed.tv_sec == found.st_mtim.tv_sec &&
        before->changed.tv_nsec == found.st_mtim.tv_nsec) {
        *version = *before;
        return true;
    }
    g_autoptr(Manifest) manifest = snapshot_folder_read(writer->directory, number, NULL);
    if (manifest == NULL)
        return false;
    *version =
        (KnownVersion){ .listed = { number, manifest->seed, manifest->base, manifest->base_seed },
                        .changed = found.st_mtim,
                        .inode = found.st_ino };
    return true;
}

static void look(RubatoStreamWriter *writer)
{
    g_autofree uint64_t *numbers = NULL;
    GArray *const versions = g_array_new(FALSE, FALSE, sizeof(KnownVersion));
    size_t n = 0;

    (void)rubato_snapshot_list(writer->directory, &numbers, &n, NULL);
    for (size_t i = n > STREAM_MOST_LISTED ? n - STREAM_MOST_LISTED : 0; i < n; i++) {
        KnownVersion version;

        if (know(writer, numbers[i], &version))
            g_array_append_val(versions, version);
    }
    g_array_unref(writer->versions);
    writer->versions = versions;
}

/* NULL: there is none. */
static const ListedVersion *newest_of(const RubatoStreamWriter *writer)
{
    const GArray *const versions = writer->versions;

    return versions->len > 0 ? &g_array_index(versions, KnownVersion, versions->len - 1).listed
                             : NULL;
}

/* ---- telling ---- */

static void tell(RubatoStreamWriter *writer)
{
    const ListedVersion *newest;
    StreamMessage message = { .kind = STREAM_MESSAGE_NEWEST };
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MESSAGE_HEAD);

    look(writer);
    newest = newest_of(writer);
    writer->told_ms = monotonic_ms();
    held_versions_tidy(writer->held, writer->told_ms);
    if (newest != NULL) {
        message.number = newest->number;
        message.seed = newest->seed;
    }
    if (message.number != writer->told)
        writer->newest_ms = writer->told_ms;
    writer->told = message.number;
    stream_message_write(&bytes, &message);
    /* A reader that does not take it gets the next one: each second there is one. */
    (void)zmq_send(writer->news, bytes.bytes, bytes.n, ZMQ_DONTWAIT);
}

/* ---- answering ---- */

/* The file of a version, opened; -1: there is none. */
static int open_file(const RubatoStreamWriter *writer, const KnownVersion *version,
                     const StreamMessage *asked)
{
    const ListedVersion *const listed = &version->listed;
    g_autofree char *folder = snapshot_folder_rows(writer->directory, listed->number, listed->seed);
    g_autofree char *whole = asked->table == STREAM_MANIFEST
                                 ? g_build_filename(folder, MANIFEST_NAME, NULL)
                                 : snapshot_folder_part(folder, asked->table, asked->part);
    g_autofree char *changes =
        snapshot_folder_changes(folder, asked->table, asked->part, listed->base_seed);
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    const int fd = open(whole, flags);

    return fd >= 0 || asked->table == STREAM_MANIFEST ? fd : open(changes, flags);
}

/* How many bytes it has read into `bytes`; -1: they cannot be read. */
static ssize_t read_file(int fd, const StreamMessage *asked, void *bytes)
{
    size_t at = 0;
    ssize_t n;

    do {
        n = pread(fd, (char *)bytes + at, asked->n - at, (off_t)(asked->offset + at));
        at += n > 0 ? (size_t)n : 0;
    } while ((n > 0 && at < asked->n) || (n < 0 && errno == EINTR));
    return n < 0 ? -1 : (ssize_t)at;
}

/* The same; -1 also if there is no such file. Who asks for a manifest begins with its version. */
static ssize_t read_bytes(const RubatoStreamWriter *writer, const StreamMessage *asked, void *bytes)
{
    const KnownVersion *const version = find_known(writer->versions, asked->number);
    const bool is_there = version != NULL && version->listed.seed == asked->seed;
    const int64_t now_ms = monotonic_ms();
    ssize_t n;
    int fd;

    if (is_there && asked->table == STREAM_MANIFEST)
        held_versions_hold(writer->held, &version->listed, now_ms);
    fd = held_versions_find(writer->held, asked, now_ms);
    if (fd >= 0)
        return read_file(fd, asked, bytes);
    fd = is_there ? open_file(writer, version, asked) : -1;
    if (fd < 0)
        return -1;
    n = read_file(fd, asked, bytes);
    close(fd);
    return n;
}

static void write_list(const RubatoStreamWriter *writer, uint64_t id, RubatoByteWriter *to)
{
    const GArray *const versions = writer->versions;

    stream_message_write(
        to, &(StreamMessage){ .kind = STREAM_MESSAGE_LIST, .id = id, .n = versions->len });
    for (guint i = 0; i < versions->len; i++)
        stream_message_write_version(to, &g_array_index(versions, KnownVersion, i).listed);
}

static void write_bytes(const RubatoStreamWriter *writer, const StreamMessage *asked,
                        RubatoByteWriter *to)
{
    g_autofree void *bytes = g_malloc(asked->n);
    const ssize_t n = read_bytes(writer, asked, bytes);
    StreamMessage answer = *asked;

    answer.kind = n < 0 ? STREAM_MESSAGE_GONE : STREAM_MESSAGE_BYTES;
    answer.n = n < 0 ? 0 : (uint32_t)n;
    stream_message_write(to, &answer);
    if (n > 0)
        rubato_write(to, bytes, (size_t)n);
}

/* Keeps what the readers have, for the end. Those that are not heard of any more go when there are
 * too many, so strangers take no more memory than that. */
static void note_reader(RubatoStreamWriter *writer, const void *id, size_t n, uint64_t has)
{
    ReaderState *const state = g_new(ReaderState, 1);

    *state = (ReaderState){ .has = has, .heard_ms = monotonic_ms() };
    if (g_hash_table_size(writer->readers) >= MOST_READERS)
        g_hash_table_remove_all(writer->readers);
    g_hash_table_replace(writer->readers, g_bytes_new(id, n), state);
}

/* A reader that fetches files asks for no list meanwhile. */
static void note_heard(RubatoStreamWriter *writer, const void *id, size_t n)
{
    g_autoptr(GBytes) key = g_bytes_new(id, n);
    ReaderState *const state = g_hash_table_lookup(writer->readers, key);

    if (state != NULL)
        state->heard_ms = monotonic_ms();
}

static void answer(RubatoStreamWriter *writer, const void *id, size_t n_id,
                   const StreamMessage *asked)
{
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MOST_ANSWER);

    if (asked->kind == STREAM_MESSAGE_ASK_LIST) {
        note_reader(writer, id, n_id, asked->number);
        write_list(writer, asked->id, &bytes);
    } else if (asked->kind == STREAM_MESSAGE_ASK_BYTES) {
        note_heard(writer, id, n_id);
        write_bytes(writer, asked, &bytes);
    } else {
        return;
    }
    if (zmq_send(writer->answers, id, n_id, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        (void)zmq_send(writer->answers, bytes.bytes, bytes.n, ZMQ_DONTWAIT);
}

static bool has_more(void *socket)
{
    int more = 0;
    size_t size = sizeof more;

    return zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) == 0 && more != 0;
}

/* A question is a routing id and one part. False: there is none. */
static bool take_question(RubatoStreamWriter *writer)
{
    unsigned char id[256], bytes[STREAM_MESSAGE_HEAD + 1]; /* one more: it is too long */
    StreamMessage asked;
    const int n_id = zmq_recv(writer->answers, id, sizeof id, ZMQ_DONTWAIT);
    int n = -1;
    bool is_one;

    if (n_id < 0)
        return false;
    if (has_more(writer->answers))
        n = zmq_recv(writer->answers, bytes, sizeof bytes, ZMQ_DONTWAIT);
    is_one = n >= 0 && !has_more(writer->answers);
    while (has_more(writer->answers)) /* all parts are there: ZeroMQ hands whole messages over */
        (void)zmq_recv(writer->answers, NULL, 0, ZMQ_DONTWAIT);
    if (is_one && (size_t)n == STREAM_MESSAGE_HEAD && stream_message_read(bytes, (size_t)n, &asked))
        answer(writer, id, (size_t)n_id, &asked);
    return true;
}

/* ---- the thread ---- */

/* Whether a reader lacks the newest version, and may still come for it. */
static bool waits_for_readers(RubatoStreamWriter *writer)
{
    const int64_t now_ms = monotonic_ms();
    GHashTableIter iterator;
    void *value;

    g_hash_table_iter_init(&iterator, writer->readers);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        const ReaderState *const state = value;

        if (state->has != writer->told &&
            now_ms - MAX(state->heard_ms, writer->newest_ms) < LAGGING_MS)
            return true;
    }
    return false;
}

static void take_news(RubatoStreamWriter *writer)
{
    unsigned char subscription[16];
    bool has_come = false;

    for (int i = 0; i < MOST_AT_ONCE &&
                    zmq_recv(writer->news, subscription, sizeof subscription, ZMQ_DONTWAIT) >= 0;
         i++)
        has_come = true;
    if (has_come)
        tell(writer);
}

static void take_event(RubatoStreamWriter *writer)
{
    uint64_t n;

    if (read(writer->event, &n, sizeof n) == (ssize_t)sizeof n)
        tell(writer);
}

static void *run(void *data)
{
    RubatoStreamWriter *const writer = data;
    int64_t end_ms = 0; /* 0: it has not been told to end */

    tell(writer);
    for (;;) {
        const int64_t now_ms = monotonic_ms();
        zmq_pollitem_t items[] = { { .socket = writer->news, .events = ZMQ_POLLIN },
                                   { .socket = writer->answers, .events = ZMQ_POLLIN },
                                   { .fd = writer->event, .events = ZMQ_POLLIN } };
        const bool ends = g_atomic_int_get(&writer->ends) != 0;

        if (ends && end_ms == 0) {
            end_ms = now_ms + MOST_LINGER_MS;
            tell(writer);
        }
        if (ends && (now_ms >= end_ms || !waits_for_readers(writer)))
            return NULL;
        (void)zmq_poll(items, G_N_ELEMENTS(items),
                       ends ? 100 : CLAMP(writer->told_ms + TELL_MS - now_ms, 0, TELL_MS));
        take_event(writer);
        take_news(writer);
        for (int i = 0; i < MOST_AT_ONCE && take_question(writer); i++)
            continue;
        if (monotonic_ms() - writer->told_ms >= TELL_MS)
            tell(writer);
    }
}

/* ---- its life ---- */

static void free_writer(RubatoStreamWriter *writer)
{
    if (writer->news != NULL)
        zmq_close(writer->news);
    if (writer->answers != NULL)
        zmq_close(writer->answers);
    if (writer->context != NULL)
        zmq_ctx_term(writer->context); /* ends: each socket gives up what it has after a second */
    if (writer->event >= 0)
        close(writer->event);
    g_array_unref(writer->versions);
    held_versions_free(writer->held);
    g_hash_table_unref(writer->readers);
    zmq_stream_address_clear(&writer->address);
    g_free(writer->directory);
    g_free(writer);
}

static bool start(RubatoStreamWriter *writer, GError **error)
{
    writer->context = zmq_ctx_new();
    writer->news = zmq_stream_socket_new(writer->context, ZMQ_STREAM_NEWS, &writer->address, error);
    if (writer->news == NULL)
        return false;
    writer->answers =
        zmq_stream_socket_new(writer->context, ZMQ_STREAM_ANSWERS, &writer->address, error);
    if (writer->answers == NULL)
        return false;
    writer->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (writer->event >= 0 && log_sink_start_thread(&writer->thread, run, writer) == 0)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "a thread that publishes the stream cannot be started");
    return false;
}

RubatoStreamWriter *zmq_publisher_open(const char *rest, const char *directory, GError **error)
{
    RubatoStreamWriter *const writer = g_new0(RubatoStreamWriter, 1);

    writer->event = -1;
    writer->directory = g_strdup(directory);
    writer->versions = g_array_new(FALSE, FALSE, sizeof(KnownVersion));
    writer->held = held_versions_new(directory);
    writer->readers =
        g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, g_free);
    if (zmq_stream_address_read(rest, &writer->address, error) &&
        zmq_stream_address_read_secret(&writer->address, error) && start(writer, error))
        return writer;
    free_writer(writer);
    return NULL;
}

static void wake(RubatoStreamWriter *writer)
{
    const uint64_t one = 1;

    (void)!write(writer->event, &one, sizeof one); /* full: it is awake */
}

void zmq_publisher_tell(RubatoStreamWriter *writer, uint64_t version)
{
    (void)version; /* the thread looks which one is the newest */
    wake(writer);
}

void zmq_publisher_close(RubatoStreamWriter *writer)
{
    g_atomic_int_set(&writer->ends, 1);
    wake(writer);
    pthread_join(writer->thread, NULL);
    free_writer(writer);
}
