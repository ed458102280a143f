/* Gets the versions of a stream, and keeps them in a directory.
 *
 * The thread hears the newest number. If it lacks that version it asks for the list, and then for
 * those that fetch_plan.c says, the oldest first. A version is written into a folder without its
 * name, its checksums are compared, and only then it gets its name, which the follower sees. So
 * what is cut off, damaged or gone meanwhile is never seen: the reader asks again. Versions that
 * the publisher has removed are removed here, too, when the newest one is there.
 *
 * A link may be slower than versions come. Then the reader asks for little at a time
 * (fetch_pace.h), goes on where it was when answers stay away for a while, and leaves versions out:
 * if it has not had the newest one for BEHIND_MS, it goes on with the newest that has all rows. So
 * it gets one in the time that its bytes take; the publisher keeps that one meanwhile
 * (held_versions.h).
 *
 * What a publisher may do: its lists, manifests and sizes are checked before they are used; it
 * names no files. It can send a model of its own and fill the disk: who may publish is a matter of
 * the secret (zmq_stream.c).
 *
 * Why each wait ends: the thread waits for news, or for the next second; for an answer for
 * ANSWER_MS, after which it asks again MOST_MISSED times, and then gives up and begins again within
 * a second. Its descriptor ends each of these waits.
 *
 * Threads: run is the thread's, with all the sockets; the rest as in the header. */
#include "io/stream/zmq/zmq_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/store/block_file.h"
#include "io/store/folder_ops.h"
#include "io/store/snapshot_folder.h"
#include "io/stream/zmq/fetch_pace.h"
#include "io/stream/zmq/fetch_plan.h"
#include "io/stream/zmq/mirror_folder.h"
#include "io/stream/zmq/zmq_stream.h"

#define LOOK_MS 1000
#define SILENT_MS 5000
#define ANSWER_MS 3000
#define MOST_MISSED 3 /* answers one after the other, before a version is given up */
#define BEHIND_MS 5000

struct RubatoStreamReader {
    /* immutable */
    ZmqStreamAddress address;
    MirrorFolder mirror;
    int event; /* it ends */
    void *context, *hears, *questions;
    pthread_t thread;

    gint ends; /* atomic */

    /* the thread's */
    GArray *here;           /* of uint64_t: the numbers of the versions that are here, ascending */
    uint64_t own, own_seed; /* the newest of them; 0: none */
    uint64_t newest, newest_seed;
    int64_t heard_ms;      /* news, or an answer */
    int64_t not_before_ms; /* after a failure */
    int64_t behind_ms;     /* since when it lacks the newest version; 0: it does not */
    uint64_t last_id;
    FetchPace pace;
    bool is_gone; /* what was asked for last was not there any more */

    pthread_mutex_t lock;
    GError *fault; /* guarded by lock; NULL: none */
};

static bool ends(const RubatoStreamReader *reader)
{
    return g_atomic_int_get(&reader->ends) != 0;
}

/* ---- what is wrong ---- */

/* Keeps it for who waits in vain, and tells it once. NULL: nothing is. (fault: transfer full) */
static void note_fault(RubatoStreamReader *reader, GError *fault)
{
    pthread_mutex_lock(&reader->lock);
    if (fault != NULL &&
        (reader->fault == NULL || strcmp(fault->message, reader->fault->message) != 0))
        g_message("no newer version of the stream than %" G_GUINT64_FORMAT ": %s", reader->own,
                  fault->message);
    g_clear_error(&reader->fault);
    reader->fault = fault;
    pthread_mutex_unlock(&reader->lock);
}

bool zmq_reader_check(RubatoStreamReader *reader, GError **error)
{
    bool ok;

    pthread_mutex_lock(&reader->lock);
    ok = reader->fault == NULL;
    if (!ok && error != NULL)
        *error = g_error_copy(reader->fault);
    pthread_mutex_unlock(&reader->lock);
    return ok;
}

static bool fail(const RubatoStreamReader *reader, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "%s: %s", reader->address.files, what);
    return false;
}

/* ---- questions ---- */

static bool ask(RubatoStreamReader *reader, const StreamMessage *question, GError **error)
{
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MESSAGE_HEAD);

    zmq_pollitem_t items[] = { { .socket = reader->questions, .events = ZMQ_POLLOUT },
                               { .fd = reader->event, .events = ZMQ_POLLIN } };

    stream_message_write(&bytes, question);
    (void)zmq_poll(items, G_N_ELEMENTS(items), ANSWER_MS); /* until it is connected */
    if (zmq_send(reader->questions, bytes.bytes, bytes.n, ZMQ_DONTWAIT) >= 0)
        return true;
    return fail(reader, "nobody answers there", error);
}

typedef enum {
    TAKEN_ANSWER,
    TAKEN_LATE,    /* no answer has come in time, or one is lost before the next */
    TAKEN_NOTHING, /* nothing that is of use */
} Taken;

/* Receives an answer with an id from `first` on; others are of questions that were given up. The
 * message points into *part, which the caller closes. */
static Taken receive(RubatoStreamReader *reader, uint64_t first, zmq_msg_t *part,
                     StreamMessage *answer, GError **error)
{
    const int64_t end_ms = monotonic_ms() + ANSWER_MS;

    for (;;) {
        const int64_t left_ms = end_ms - monotonic_ms();
        zmq_pollitem_t items[] = { { .socket = reader->questions, .events = ZMQ_POLLIN },
                                   { .fd = reader->event, .events = ZMQ_POLLIN } };

        if (ends(reader)) {
            fail(reader, "the reader ends", error);
            return TAKEN_NOTHING;
        }
        if (left_ms <= 0) {
            fail(reader, "no answer has come in time", error);
            return TAKEN_LATE;
        }
        (void)zmq_poll(items, G_N_ELEMENTS(items), left_ms);
        if (zmq_msg_recv(part, reader->questions, ZMQ_DONTWAIT) < 0)
            continue;
        if (stream_message_read(zmq_msg_data(part), zmq_msg_size(part), answer) &&
            answer->id >= first && answer->id <= reader->last_id) {
            reader->heard_ms = monotonic_ms();
            return TAKEN_ANSWER;
        }
    }
}

/* ---- files ---- */

/* A file that is fetched. */
typedef struct {
    RubatoStreamReader *reader;
    StreamMessage question; /* of its version, table and part */
    uint64_t n_bytes;       /* UINT64_MAX: it ends with an answer that is short */
    const char *path;
    int fd;

    /* what is under way, by the question's id: when it was asked for, and how much */
    int64_t asked_ms[FETCH_MOST_WINDOW];
    uint32_t asked_bytes[FETCH_MOST_WINDOW];
} Fetch;

static bool write_at(const Fetch *fetch, const StreamMessage *answer, GError **error)
{
    for (size_t at = 0; at < answer->n;) {
        const ssize_t n = pwrite(fetch->fd, (const char *)answer->body + at, answer->n - at,
                                 (off_t)(answer->offset + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0) /* no file system does so; it would never end */
            errno = ENOSPC;
        if (n <= 0) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be written: %s",
                        fetch->path, g_strerror(errno));
            return false;
        }
        at += (size_t)n;
    }
    return true;
}

/* What is wrong with an answer; NULL: nothing is. */
static const char *find_wrong(const Fetch *fetch, const StreamMessage *answer, uint64_t next)
{
    if (answer->kind == STREAM_MESSAGE_GONE)
        return "a version was removed while it was fetched; the stream should keep more of them";
    if (answer->kind != STREAM_MESSAGE_BYTES || answer->offset != next ||
        answer->number != fetch->question.number || answer->table != fetch->question.table ||
        answer->part != fetch->question.part ||
        answer->n > fetch->asked_bytes[answer->id % FETCH_MOST_WINDOW])
        return "what came is not what was asked for";
    return NULL;
}

/* Takes an answer. *next: where the next one begins; they come in the order of the questions.
 * *is_short: it has fewer bytes than were asked for. */
static Taken take_bytes(const Fetch *fetch, uint64_t first, uint64_t *next, bool *is_short,
                        GError **error)
{
    RubatoStreamReader *const reader = fetch->reader;
    StreamMessage answer;
    zmq_msg_t part;
    Taken taken;

    zmq_msg_init(&part);
    taken = receive(reader, first, &part, &answer, error);
    if (taken == TAKEN_ANSWER) {
        const size_t at = answer.id % FETCH_MOST_WINDOW;
        const char *const wrong = find_wrong(fetch, &answer, *next);

        reader->is_gone = answer.kind == STREAM_MESSAGE_GONE;
        if (wrong != NULL)
            fail(reader, wrong, error);
        if (wrong != NULL || !write_at(fetch, &answer, error)) {
            taken = wrong != NULL && answer.kind == STREAM_MESSAGE_BYTES && answer.offset > *next
                        ? TAKEN_LATE
                        : TAKEN_NOTHING;
        } else {
            fetch_pace_answered(&reader->pace, monotonic_ms() - fetch->asked_ms[at]);
            *next += answer.n;
            *is_short = answer.n < fetch->asked_bytes[at];
        }
    }
    zmq_msg_close(&part);
    return taken;
}

static bool ask_bytes(Fetch *fetch, uint64_t offset, uint64_t most, GError **error)
{
    RubatoStreamReader *const reader = fetch->reader;
    const uint64_t id = ++reader->last_id;

    fetch->question.id = id;
    fetch->question.offset = offset;
    fetch->question.n = (uint32_t)MIN(most - offset, reader->pace.n_bytes);
    fetch->asked_ms[id % FETCH_MOST_WINDOW] = monotonic_ms();
    fetch->asked_bytes[id % FETCH_MOST_WINDOW] = fetch->question.n;
    return ask(reader, &fetch->question, error);
}

/* Asks for pieces, as many at a time as the pace says, and writes them. If no answer comes in time,
 * it asks again from there on; answers to the questions before are dropped. */
static bool fetch_bytes(Fetch *fetch, GError **error)
{
    RubatoStreamReader *const reader = fetch->reader;
    const bool is_known = fetch->n_bytes != UINT64_MAX;
    const uint64_t most = is_known ? fetch->n_bytes : MOST_MANIFEST;
    uint64_t first = reader->last_id + 1, n_answered = 0, asked = 0, next = 0;
    GError *fault = NULL;
    unsigned n_missed = 0;
    bool is_short = false;

    while (is_known ? next < most : !is_short) {
        if (next >= most)
            return fail(reader, "a manifest has no end", error);
        while (asked < most &&
               reader->last_id + 1 - first - n_answered < (is_known ? reader->pace.window : 1)) {
            if (!ask_bytes(fetch, asked, most, error))
                return false;
            asked += fetch->question.n;
        }
        const Taken taken = take_bytes(fetch, first, &next, &is_short, &fault);
        if (taken == TAKEN_NOTHING || (taken == TAKEN_LATE && n_missed++ == MOST_MISSED)) {
            g_propagate_error(error, fault);
            return false;
        }
        if (taken == TAKEN_ANSWER) {
            n_answered++;
            n_missed = 0;
        } else {
            g_clear_error(&fault);
            fetch_pace_missed(&reader->pace);
            first = reader->last_id + 1;
            n_answered = 0;
            asked = next;
        }
        if (is_known && is_short && next < most)
            return fail(reader, "a file is shorter than it has to be", error);
    }
    return true;
}

/* Reads a file that has come. */
static bool check_file(const char *path, uint64_t seed, const BlockFileSum *sum, GError **error)
{
    BlockReader *const blocks = block_reader_new(path, seed, sum, error);
    const bool ok = blocks != NULL && block_reader_skip(blocks, error);

    block_reader_free(blocks);
    return ok;
}

/* (path: of the file to write) */
static bool fetch_file(RubatoStreamReader *reader, const ListedVersion *version, uint32_t table,
                       uint32_t part, const BlockFileSum *sum, const char *path, GError **error)
{
    Fetch fetch = { .reader = reader,
                    .question = { .kind = STREAM_MESSAGE_ASK_BYTES,
                                  .number = version->number,
                                  .seed = version->seed,
                                  .table = table,
                                  .part = part },
                    .n_bytes = sum != NULL ? sum->n_bytes : UINT64_MAX,
                    .path = path,
                    .fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) };
    bool ok;

    if (fetch.fd < 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be created: %s", path,
                    g_strerror(errno));
        return false;
    }
    ok = fetch_bytes(&fetch, error);
    close(fetch.fd); /* nothing of it need reach the disk */
    return ok && (sum == NULL || check_file(path, version->seed, sum, error));
}

/* ---- versions ---- */

static bool fetch_parts(RubatoStreamReader *reader, const ListedVersion *version,
                        const Manifest *manifest, const char *folder, GError **error)
{
    for (size_t i = 0; i < manifest->n_tables; i++) {
        const ManifestTable *const table = &manifest->tables[i];

        for (uint32_t k = 0; k < table->spec.n_parts; k++) {
            g_autofree char *path = table->parts[k].has_changes
                                        ? snapshot_folder_changes(folder, i, k, manifest->base_seed)
                                        : snapshot_folder_part(folder, i, k);

            if (!fetch_file(reader, version, (uint32_t)i, k, &table->parts[k].sum, path, error))
                return false;
        }
    }
    return true;
}

/* (transfer full) */
static Manifest *fetch_manifest(RubatoStreamReader *reader, const ListedVersion *version,
                                const char *folder, GError **error)
{
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autofree char *text = NULL;
    g_autoptr(Manifest) manifest = NULL;
    gsize n;

    if (!fetch_file(reader, version, STREAM_MANIFEST, 0, NULL, path, error))
        return NULL;
    if (!g_file_get_contents(path, &text, &n, NULL)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read", path);
        return NULL;
    }
    manifest = manifest_parse(text, n, path, error);
    if (manifest == NULL)
        return NULL;
    if (manifest->seed == version->seed && manifest->base == version->base &&
        manifest->base_seed == version->base_seed)
        return g_steal_pointer(&manifest);
    fail(reader, "a manifest is not that of the version that was asked for", error);
    return NULL;
}

static void note_here(RubatoStreamReader *reader, uint64_t number)
{
    guint at = reader->here->len;

    while (at > 0 && g_array_index(reader->here, uint64_t, at - 1) > number)
        at--;
    g_array_insert_val(reader->here, at, number);
}

static bool fetch_version(RubatoStreamReader *reader, const ListedVersion *version, GError **error)
{
    g_autofree char *folder = snapshot_folder_writing(reader->mirror.path, version->seed);
    g_autoptr(Manifest) manifest = NULL;
    bool ok;

    ok = snapshot_folder_begin(reader->mirror.path, version->seed, error) &&
         (manifest = fetch_manifest(reader, version, folder, error)) != NULL &&
         fetch_parts(reader, version, manifest, folder, error) &&
         mirror_folder_show(&reader->mirror, version->seed, version->number, error);
    if (!ok) {
        snapshot_folder_abandon(reader->mirror.path, version->seed);
        return false;
    }
    note_here(reader, version->number);
    reader->own = version->number;
    reader->own_seed = version->seed;
    return true;
}

/* Removes those that the publisher has not; versions NULL: all. */
static void drop(RubatoStreamReader *reader, const ListedVersion *versions, size_t n)
{
    uint64_t *const numbers = (uint64_t *)(void *)reader->here->data;
    guint n_left = 0;
    size_t at = 0;

    for (guint i = 0; i < reader->here->len; i++) {
        while (at < n && versions[at].number < numbers[i])
            at++;
        if (at == n || versions[at].number != numbers[i])
            mirror_folder_drop(&reader->mirror, numbers[i]);
        else
            numbers[n_left++] = numbers[i];
    }
    g_array_set_size(reader->here, n_left);
}

/* ---- catching up ---- */

typedef struct {
    ListedVersion *versions;
    size_t n;
} List;

static bool fetch_list(RubatoStreamReader *reader, List *list, GError **error)
{
    const StreamMessage question = { .kind = STREAM_MESSAGE_ASK_LIST,
                                     .id = ++reader->last_id,
                                     .number = reader->own,
                                     .seed = reader->own_seed };
    StreamMessage answer;
    zmq_msg_t part;
    bool ok;

    zmq_msg_init(&part);
    ok = ask(reader, &question, error) &&
         receive(reader, question.id, &part, &answer, error) == TAKEN_ANSWER;
    if (ok) {
        list->n = answer.kind == STREAM_MESSAGE_LIST ? answer.n : 0;
        list->versions = g_new(ListedVersion, list->n);
        ok = (answer.kind == STREAM_MESSAGE_LIST &&
              stream_message_read_versions(&answer, list->versions)) ||
             fail(reader, "what came is no list", error);
    }
    zmq_msg_close(&part);
    return ok;
}

static bool is_behind(const RubatoStreamReader *reader)
{
    return monotonic_ms() - reader->behind_ms >= BEHIND_MS;
}

/* Fetches what is missing by one list. *is_there: nothing was. */
static bool catch_up_once(RubatoStreamReader *reader, bool *is_there, GError **error)
{
    List list = { NULL, 0 };
    const bool has_list = fetch_list(reader, &list, error);
    g_autofree ListedVersion *versions = list.versions;
    g_autofree size_t *at = g_new(size_t, list.n);
    GError *fault = NULL;
    size_t n_at = 0;

    if (!has_list)
        return false;
    if (fetch_plan(reader->own, reader->own_seed, versions, list.n, at, &n_at) == FETCH_OTHER) {
        drop(reader, NULL, 0);
        reader->own = 0;
    }
    if (is_behind(reader))
        n_at = fetch_plan_leave_out(versions, at, n_at);
    for (size_t i = 0; i < n_at; i++) {
        if (i > 0 && is_behind(reader))
            return true; /* perhaps there is a newer one with all rows */
        reader->is_gone = false;
        if (!fetch_version(reader, &versions[at[i]], i > 0 ? &fault : error)) {
            if (i == 0)
                return false;
            if (reader->is_gone) { /* others are there */
                g_clear_error(&fault);
                return true;
            }
            g_propagate_error(error, fault);
            return false;
        }
    }
    *is_there = n_at == 0;
    if (list.n > 0)
        drop(reader, versions, list.n);
    return true;
}

/* Each round but the last one gets a version; the last list tells the publisher what is here. */
static void catch_up(RubatoStreamReader *reader)
{
    GError *fault = NULL;
    bool is_there = false;

    if (reader->behind_ms == 0)
        reader->behind_ms = monotonic_ms();
    while (!is_there && fault == NULL && !ends(reader))
        (void)catch_up_once(reader, &is_there, &fault);
    if (ends(reader)) {
        g_clear_error(&fault);
        return;
    }
    if (fault != NULL)
        reader->not_before_ms = monotonic_ms() + LOOK_MS;
    else
        reader->behind_ms = 0;
    note_fault(reader, fault);
}

/* ---- the thread ---- */

static void hear(RubatoStreamReader *reader)
{
    unsigned char bytes[STREAM_MESSAGE_HEAD + 1];
    StreamMessage news;
    const int n = zmq_recv(reader->hears, bytes, sizeof bytes, ZMQ_DONTWAIT);

    if (n != (int)STREAM_MESSAGE_HEAD || !stream_message_read(bytes, (size_t)n, &news) ||
        news.kind != STREAM_MESSAGE_NEWEST)
        return;
    reader->heard_ms = monotonic_ms();
    reader->newest = news.number;
    reader->newest_seed = news.seed;
}

static void tell_silence(RubatoStreamReader *reader)
{
    if (monotonic_ms() - reader->heard_ms < SILENT_MS)
        return;
    note_fault(reader, g_error_new(RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                                   "%s: nothing was heard for %d s; does the run go on that "
                                   "streams there, and has it the same secret?",
                                   reader->address.news, SILENT_MS / 1000));
}

static void *run(void *data)
{
    RubatoStreamReader *const reader = data;

    reader->heard_ms = monotonic_ms();
    fetch_pace_init(&reader->pace);
    while (!ends(reader)) {
        const bool lacks = reader->newest != 0 && (reader->newest != reader->own ||
                                                   reader->newest_seed != reader->own_seed);
        const int64_t now_ms = monotonic_ms();
        const int64_t wait_ms = lacks ? reader->not_before_ms - now_ms : LOOK_MS;
        zmq_pollitem_t items[] = { { .socket = reader->hears, .events = ZMQ_POLLIN },
                                   { .fd = reader->event, .events = ZMQ_POLLIN } };

        (void)zmq_poll(items, G_N_ELEMENTS(items), CLAMP(wait_ms, 0, LOOK_MS));
        hear(reader);
        if (lacks && monotonic_ms() >= reader->not_before_ms)
            catch_up(reader);
        else if (!lacks && reader->newest != 0 && monotonic_ms() - reader->heard_ms < SILENT_MS)
            note_fault(reader, NULL);
        tell_silence(reader);
    }
    return NULL;
}

/* ---- its life ---- */

static void free_reader(RubatoStreamReader *reader)
{
    if (reader->hears != NULL)
        zmq_close(reader->hears);
    if (reader->questions != NULL)
        zmq_close(reader->questions);
    if (reader->context != NULL)
        zmq_ctx_term(reader->context); /* ends: the sockets keep nothing */
    if (reader->event >= 0)
        close(reader->event);
    mirror_folder_remove(&reader->mirror);
    g_array_unref(reader->here);
    zmq_stream_address_clear(&reader->address);
    g_clear_error(&reader->fault);
    pthread_mutex_destroy(&reader->lock);
    g_free(reader);
}

static bool start(RubatoStreamReader *reader, GError **error)
{
    reader->context = zmq_ctx_new();
    reader->hears =
        zmq_stream_socket_new(reader->context, ZMQ_STREAM_HEARS, &reader->address, error);
    if (reader->hears == NULL)
        return false;
    reader->questions =
        zmq_stream_socket_new(reader->context, ZMQ_STREAM_QUESTIONS, &reader->address, error);
    if (reader->questions == NULL)
        return false;
    reader->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (reader->event >= 0 && log_sink_start_thread(&reader->thread, run, reader) == 0)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "a thread that reads the stream cannot be started");
    return false;
}

RubatoStreamReader *zmq_reader_open(const char *rest, char **directory, GError **error)
{
    RubatoStreamReader *const reader = g_new0(RubatoStreamReader, 1);

    reader->event = -1;
    reader->here = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    pthread_mutex_init(&reader->lock, NULL);
    if (zmq_stream_address_read(rest, &reader->address, error) &&
        zmq_stream_address_read_secret(&reader->address, error) &&
        mirror_folder_make(&reader->mirror, error) && start(reader, error)) {
        *directory = g_strdup(reader->mirror.path);
        return reader;
    }
    free_reader(reader);
    return NULL;
}

void zmq_reader_close(RubatoStreamReader *reader)
{
    const uint64_t one = 1;

    g_atomic_int_set(&reader->ends, 1);
    (void)!write(reader->event, &one, sizeof one);
    pthread_join(reader->thread, NULL);
    free_reader(reader);
}
