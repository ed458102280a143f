/* Gets the versions of a stream, and keeps them in a directory.
 *
 * The thread hears the newest number. If it lacks that version it asks for the list, and then for
 * those that fetch_plan.c says, the oldest first (version_fetch.c). If that fails, it asks again.
 * Versions that the publisher has removed are removed here, too, when the newest one is there.
 *
 * A link may be slower than versions come. Then the reader asks for little at a time
 * (file_fetch.c), goes on where it was when answers stay away for a while, and leaves versions out:
 * if it has not had the newest one for BEHIND_MS, it goes on with the newest that has all rows. So
 * it gets one in the time that its bytes take; the publisher keeps that one meanwhile
 * (held_versions.h).
 *
 * What a publisher may do: its lists, manifests and sizes are checked before they are used; it
 * names no files. It can send a model of its own and fill the disk: who may publish is a matter of
 * the secret (zmq_stream.c).
 *
 * Why each wait ends: the thread waits for news, or for the next second; for an answer a bounded
 * time (questions.h), and asks for it again a few times (file_fetch.h); then it gives up and begins
 * again within a second. Its descriptor ends each of these waits.
 *
 * Threads: run is the thread's, with all the sockets; the rest as in the header. */
#include "io/stream/zmq/zmq_reader.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/stream/zmq/fetch_plan.h"
#include "io/stream/zmq/version_fetch.h"
#include "io/stream/zmq/zmq_stream.h"

#define LOOK_MS 1000
#define SILENT_MS 5000
#define BEHIND_MS 5000

struct RubatoStreamReader {
    /* immutable */
    ZmqStreamAddress address;
    MirrorFolder mirror;
    int event; /* it ends */
    void *context, *hears, *asks;
    pthread_t thread;

    gint ends; /* atomic */

    /* the thread's */
    GArray *here;           /* of uint64_t: the numbers of the versions that are here, ascending */
    uint64_t own, own_seed; /* the newest of them; 0: none */
    uint64_t newest, newest_seed;
    int64_t not_before_ms; /* after a failure */
    int64_t behind_ms;     /* since when it lacks the newest version; 0: it does not */
    Questions *questions;
    FileFetcher files;

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

/* ---- versions ---- */

static void note_here(RubatoStreamReader *reader, uint64_t number)
{
    guint at = reader->here->len;

    while (at > 0 && g_array_index(reader->here, uint64_t, at - 1) > number)
        at--;
    g_array_insert_val(reader->here, at, number);
}

static bool fetch_version(RubatoStreamReader *reader, const ListedVersion *version, GError **error)
{
    if (!version_fetch(&reader->files, version, &reader->mirror, error))
        return false;
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
                                     .id = questions_next_id(reader->questions),
                                     .number = reader->own,
                                     .seed = reader->own_seed };
    StreamMessage answer;
    bool ok;

    ok = questions_ask(reader->questions, &question, error) &&
         questions_receive(reader->questions, question.id, &answer, error) == TAKEN_ANSWER;
    if (ok) {
        list->n = answer.kind == STREAM_MESSAGE_LIST ? answer.n : 0;
        list->versions = g_new(ListedVersion, list->n);
        ok = (answer.kind == STREAM_MESSAGE_LIST &&
              stream_message_read_versions(&answer, list->versions)) ||
             questions_fail(reader->questions, "what came is no list", error);
    }
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
        reader->files.is_gone = false;
        if (!fetch_version(reader, &versions[at[i]], i > 0 ? &fault : error)) {
            if (i == 0)
                return false;
            if (reader->files.is_gone) { /* others are there */
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
    questions_note_heard(reader->questions);
    reader->newest = news.number;
    reader->newest_seed = news.seed;
}

static void tell_silence(RubatoStreamReader *reader)
{
    if (questions_silent_ms(reader->questions) < SILENT_MS)
        return;
    note_fault(reader, g_error_new(RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                                   "%s: nothing was heard for %d s; does the run go on that "
                                   "streams there, and has it the same secret?",
                                   reader->address.news, SILENT_MS / 1000));
}

static void *run(void *data)
{
    RubatoStreamReader *const reader = data;

    questions_note_heard(reader->questions);
    fetch_pace_init(&reader->files.pace);
    while (!ends(reader)) {
        const bool lacks = reader->newest != 0 && (reader->newest != reader->own ||
                                                   reader->newest_seed != reader->own_seed);
        const int64_t now_ms = monotonic_ms();
        const int64_t wait_ms = lacks ? reader->not_before_ms - now_ms : LOOK_MS;
        zmq_pollitem_t items[] = { { .socket = reader->hears, .events = ZMQ_POLLIN },
                                   { .fd = reader->event, .events = ZMQ_POLLIN } };

        (void)zmq_poll(items, G_N_ELEMENTS(items), CLAMP(wait_ms, 0, LOOK_MS));
        (void)questions_forget_losses(reader->questions);
        hear(reader);
        if (lacks && monotonic_ms() >= reader->not_before_ms) {
            catch_up(reader);
            hear(reader); /* what was told meanwhile: it was not silent */
        } else if (!lacks && reader->newest != 0 &&
                   questions_silent_ms(reader->questions) < SILENT_MS) {
            note_fault(reader, NULL);
        }
        tell_silence(reader);
    }
    return NULL;
}

/* ---- its life ---- */

static void free_reader(RubatoStreamReader *reader)
{
    questions_free(reader->questions);
    if (reader->hears != NULL)
        zmq_close(reader->hears);
    if (reader->asks != NULL)
        zmq_close(reader->asks);
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
    reader->asks =
        zmq_stream_socket_new(reader->context, ZMQ_STREAM_QUESTIONS, &reader->address, error);
    if (reader->asks == NULL)
        return false;
    reader->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    reader->questions = questions_new(reader->context, reader->address.files, reader->asks,
                                      &reader->ends, reader->event, error);
    if (reader->questions == NULL)
        return false;
    reader->files.questions = reader->questions;
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
