/* The buffers of a timeline, its file, and the thread that writes it.
 *
 * There are two buffers: one takes records while the writer writes the other. A record that does
 * not fit is dropped. The writer looks every WRITE_MS, and is woken when a buffer is half full.
 *
 * Each write begins where the file's last event ends, and brings the end of the list with it:
 * whoever reads the file finds a whole list. A failed write is undone in place, which needs no room
 * on the disk.
 *
 * Threads: those that record, and the writer. */
#include "io/timeline/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "io/net/log_sink.h"
#include "io/timeline/timeline_private.h"

enum {
    BUFFER_BYTES = 4 << 20,
    TEXT_BYTES = 256 << 10, /* that are written at once, about */
    WRITE_MS = 100,
    MOST_TEXT = 255, /* bytes of a name; what is longer is cut */
};

/* Viewers open no larger file. */
#define MOST_FILE_BYTES ((off_t)1 << 30)

#define LIST_BEGIN "["
#define LIST_END "\n]\n"

typedef struct {
    uint8_t *bytes;
    size_t used;
    uint64_t n_dropped; /* behind what is in it */
} Buffer;

typedef struct {
    Timeline base;
    uint32_t node; /* immutable */

    pthread_mutex_t life; /* held while it is started or stopped */
    /* guarded by life */
    char *path; /* NULL: it is off */
    pthread_t writer;

    /* writer only, while there is one */
    int fd;
    off_t end; /* of the last event, or of LIST_BEGIN */
    TimelineFrame frame;
    GString *text;
    GError *failure; /* why it does not write any more */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    Buffer filling;
    uint64_t started_ns; /* what began before is not of this recording */
    bool takes;          /* records */
    bool ends;
} Recorder;

/* base is its first member */
static Recorder *recorder_of(Timeline *timeline)
{
    return (Recorder *)(void *)timeline;
}

/* ---- the file ---- */

static bool write_at(int fd, const char *bytes, size_t n, off_t offset)
{
    while (n > 0) {
        const ssize_t written = pwrite(fd, bytes, n, offset);

        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
            offset += written;
        }
    }
    return true;
}

static void stop_taking(Recorder *recorder)
{
    pthread_mutex_lock(&recorder->lock);
    recorder->takes = false;
    atomic_store_explicit(&recorder->base.is_on, false, memory_order_relaxed);
    pthread_mutex_unlock(&recorder->lock);
}

/* The file stays as it was before the last write. */
static void give_up(Recorder *recorder, const char *why)
{
    const size_t n = strlen(LIST_END);

    stop_taking(recorder);
    g_set_error(&recorder->failure, RUBATO_ERROR, RUBATO_ERROR_IO,
                "the timeline in %s ends early: %s", recorder->path, why);
    if (!write_at(recorder->fd, LIST_END, n, recorder->end) ||
        ftruncate(recorder->fd, recorder->end + (off_t)n) != 0)
        g_warning("node %u: the end of %s is not whole: %s", recorder->node, recorder->path,
                  g_strerror(errno));
    g_warning("node %u: %s; the run goes on", recorder->node, recorder->failure->message);
}

/* Writes the lines, which begin with a comma, behind those that are there. */
static void write_text(Recorder *recorder)
{
    GString *const text = recorder->text;

    if (recorder->failure == NULL && text->len > 0) {
        const off_t n = (off_t)text->len;

        if (recorder->end == (off_t)strlen(LIST_BEGIN)) /* no comma before the first one */
            text->str[0] = ' ';
        g_string_append(text, LIST_END);
        if (!write_at(recorder->fd, text->str, text->len, recorder->end))
            give_up(recorder, g_strerror(errno));
        else if ((recorder->end += n) >= MOST_FILE_BYTES)
            give_up(recorder, "it has 1 GiB, and viewers open no more");
    }
    g_string_truncate(text, 0);
}

/* ---- the writer ---- */

static void write_buffer(Recorder *recorder, const Buffer *buffer)
{
    const TimelineRecord *record;

    for (size_t at = 0; at < buffer->used; at += record->n_bytes) {
        record = (const TimelineRecord *)(const void *)(buffer->bytes + at);
        timeline_write_record(recorder->text, &recorder->frame, record);
        if (recorder->text->len >= TEXT_BYTES)
            write_text(recorder);
    }
    if (buffer->n_dropped > 0)
        timeline_write_dropped(recorder->text, &recorder->frame, (uint64_t)monotonic_ns(),
                               buffer->n_dropped);
    write_text(recorder);
}

static void *run_writer(void *data)
{
    Recorder *const recorder = data;
    Buffer writing = { .bytes = g_malloc(BUFFER_BYTES) };
    bool ends;

    do {
        const int64_t end_ms = monotonic_ms() + WRITE_MS;

        pthread_mutex_lock(&recorder->lock);
        while (!recorder->ends && recorder->filling.used < BUFFER_BYTES / 2 &&
               monotonic_wait(&recorder->changed, &recorder->lock, end_ms))
            continue;
        ends = recorder->ends;
        const Buffer full = recorder->filling;
        recorder->filling = (Buffer){ .bytes = writing.bytes };
        pthread_mutex_unlock(&recorder->lock);
        writing = full;
        write_buffer(recorder, &writing);
    } while (!ends);
    g_free(writing.bytes);
    return NULL;
}

/* ---- its life ---- */

Timeline *timeline_new(uint32_t node)
{
    Recorder *const recorder = g_new0(Recorder, 1);

    recorder->node = node;
    recorder->frame.node = node;
    recorder->fd = -1;
    pthread_mutex_init(&recorder->life, NULL);
    pthread_mutex_init(&recorder->lock, NULL);
    monotonic_cond_init(&recorder->changed);
    return &recorder->base;
}

static bool fail_to_start(Recorder *recorder, const char *path, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot write a timeline to %s: %s", path,
                g_strerror(errno));
    if (recorder->fd >= 0)
        close(recorder->fd);
    recorder->fd = -1;
    return false;
}

static void clear(Recorder *recorder)
{
    close(recorder->fd);
    recorder->fd = -1;
    g_string_free(recorder->text, TRUE);
    g_clear_error(&recorder->failure);
    g_clear_pointer(&recorder->path, g_free);
    g_clear_pointer(&recorder->filling.bytes, g_free);
}

/* The first record comes before those of other threads. */
static void take_records(Recorder *recorder, const TimelineClock *clock)
{
    pthread_mutex_lock(&recorder->lock);
    recorder->started_ns = (uint64_t)monotonic_ns();
    recorder->takes = true;
    pthread_mutex_unlock(&recorder->lock);
    if (clock != NULL)
        timeline_set_clock(&recorder->base, clock);
    pthread_mutex_lock(&recorder->lock);
    atomic_store_explicit(&recorder->base.is_on, recorder->takes, memory_order_relaxed);
    pthread_mutex_unlock(&recorder->lock);
}

/* life is held. */
static bool start(Recorder *recorder, const char *path, const TimelineClock *clock, GError **error)
{
    static const char list[] = LIST_BEGIN LIST_END;

    if (recorder->path != NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the timeline of node %u is being recorded already, into %s; stop it first",
                    recorder->node, recorder->path);
        return false;
    }
    recorder->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (recorder->fd < 0 || !write_at(recorder->fd, list, strlen(list), 0))
        return fail_to_start(recorder, path, error);
    recorder->end = (off_t)strlen(LIST_BEGIN);
    recorder->text = g_string_new(NULL);
    recorder->path = g_strdup(path);
    recorder->filling = (Buffer){ .bytes = g_malloc(BUFFER_BYTES) };
    recorder->ends = false;
    if (log_sink_start_thread(&recorder->writer, run_writer, recorder) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "cannot start a thread for the timeline of node %u", recorder->node);
        clear(recorder);
        return false;
    }
    pthread_setname_np(recorder->writer, "timeline");
    take_records(recorder, clock);
    return true;
}

bool timeline_start(Timeline *timeline, const char *path, const TimelineClock *clock,
                    GError **error)
{
    Recorder *const recorder = recorder_of(timeline);

    pthread_mutex_lock(&recorder->life);
    const bool ok = start(recorder, path, clock, error);
    pthread_mutex_unlock(&recorder->life);
    return ok;
}

/* life is held. */
static bool stop(Recorder *recorder, GError **error)
{
    if (recorder->path == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "no timeline of node %u is being recorded", recorder->node);
        return false;
    }
    stop_taking(recorder);
    pthread_mutex_lock(&recorder->lock);
    recorder->ends = true;
    pthread_cond_signal(&recorder->changed);
    pthread_mutex_unlock(&recorder->lock);
    pthread_join(recorder->writer, NULL);
    const bool ok = recorder->failure == NULL;
    if (!ok)
        g_propagate_error(error, g_steal_pointer(&recorder->failure));
    clear(recorder);
    return ok;
}

bool timeline_stop(Timeline *timeline, GError **error)
{
    Recorder *const recorder = recorder_of(timeline);

    pthread_mutex_lock(&recorder->life);
    const bool ok = stop(recorder, error);
    pthread_mutex_unlock(&recorder->life);
    return ok;
}

void timeline_free(Timeline *timeline)
{
    Recorder *const recorder = timeline == NULL ? NULL : recorder_of(timeline);

    if (recorder == NULL)
        return;
    if (recorder->path != NULL)
        stop(recorder, NULL); /* the log has said why, if it fails */
    pthread_cond_destroy(&recorder->changed);
    pthread_mutex_destroy(&recorder->lock);
    pthread_mutex_destroy(&recorder->life);
    g_free(recorder);
}

/* ---- recording ---- */

/* begun_ns: since when what is recorded went on. */
static void note(Timeline *timeline, const TimelineRecord *record, uint64_t begun_ns,
                 const TimelineTick *ticks, uint32_t n_ticks, const char *string)
{
    Recorder *const recorder = recorder_of(timeline);
    const size_t length = string == NULL ? 0 : strnlen(string, MOST_TEXT);
    const size_t tick_bytes = n_ticks * sizeof *ticks;
    const size_t n = (sizeof *record + tick_bytes + length + 1 + 7) / 8 * 8;

    pthread_mutex_lock(&recorder->lock);
    Buffer *const buffer = &recorder->filling;
    const bool takes = recorder->takes && begun_ns >= recorder->started_ns;
    if (takes && BUFFER_BYTES - buffer->used < n)
        buffer->n_dropped++;
    else if (takes) {
        uint8_t *const at = buffer->bytes + buffer->used;
        TimelineRecord *const copy = (TimelineRecord *)(void *)at;
        const bool was_half_full = buffer->used >= BUFFER_BYTES / 2;

        *copy = *record;
        copy->n_bytes = (uint32_t)n;
        copy->has_text = string != NULL;
        if (tick_bytes > 0)
            memcpy(at + sizeof *record, ticks, tick_bytes);
        if (length > 0)
            memcpy(at + sizeof *record + tick_bytes, string, length);
        at[sizeof *record + tick_bytes + length] = '\0';
        buffer->used += n;
        if (!was_half_full && buffer->used >= BUFFER_BYTES / 2)
            pthread_cond_signal(&recorder->changed);
    }
    pthread_mutex_unlock(&recorder->lock);
}

void timeline_set_clock(Timeline *timeline, const TimelineClock *clock)
{
    note(timeline, &(TimelineRecord){ .kind = TIMELINE_RECORD_CLOCK, .clock = *clock }, UINT64_MAX,
         NULL, 0, NULL);
}

void timeline_name(Timeline *timeline, TimelineActor actor, const char *task)
{
    note(timeline, &(TimelineRecord){ .kind = TIMELINE_RECORD_NAME, .named = actor }, UINT64_MAX,
         NULL, 0, task);
}

void timeline_note_call(Timeline *timeline, const TimelineCall *call)
{
    note(timeline, &(TimelineRecord){ .kind = TIMELINE_RECORD_CALL, .call = *call }, call->begun_ns,
         NULL, 0, call->subject);
}

void timeline_note_operation(Timeline *timeline, const TimelineOperation *operation)
{
    note(timeline, &(TimelineRecord){ .kind = TIMELINE_RECORD_OPERATION, .operation = *operation },
         operation->asked_ns, operation->ticks, operation->n_ticks, operation->name);
}

/* ---- the clocks of nodes ---- */

TimelineClock timeline_estimate(const TimelineProbe *probes, size_t n)
{
    const TimelineProbe *best = probes;

    for (size_t i = 1; i < n; i++)
        if (probes[i].answered_ns - probes[i].sent_ns < best->answered_ns - best->sent_ns)
            best = &probes[i];
    const int64_t half_ns = (best->answered_ns - best->sent_ns) / 2;
    return (TimelineClock){ .offset_ns = best->other_ns - (best->sent_ns + half_ns),
                            .error_ns = (uint64_t)half_ns + 1 };
}
