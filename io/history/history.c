/* The file of a node's history, and the thread that packs and writes it.
 *
 * Chunks come from a bounded number of buffers: a worker that records faster than the disk writes
 * waits for one. After a failed write the file is cut back to its last whole chunk, its header says
 * that it is incomplete, and chunks are dropped, so nobody waits any more.
 *
 * Threads: the writer's own, and any that hands over a chunk. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rubato/error.h>

#include "io/history/history_mapped.h"
#include "io/history/history_pack.h"
#include "io/huge_pages.h"
#include "io/net/log_sink.h"

#define MOST_CHUNKS 64

/* Chunks are made so many at a time, in huge pages: a worker fills one after the other, and would
 * wait for each small page. */
#define BLOCK_CHUNKS 16
#define BLOCK_BYTES (BLOCK_CHUNKS * sizeof(HistoryChunk))

/* To wake a thread costs a worker as much as a dozen requests. So a writer with nothing to write
 * looks again after this time, and is woken only if it has looked in vain, if many chunks wait, or
 * if somebody waits for it. */
#define NAP_NS (200 * 1000)
#define MOST_NAPS_IN_VAIN 5
#define CHUNKS_THAT_WAKE 16

/* Files of one node, which are tried one after the other. */
#define MOST_PROCESSES 1000

typedef enum {
    FILE_STATE_OPEN, /* its process has not come to the end: it runs, or was killed */
    FILE_STATE_COMPLETE,
    FILE_STATE_INCOMPLETE, /* a write failed */
    FILE_STATE_SILENT,     /* as OPEN, and the node has asked nothing yet */
} FileState;

typedef enum {
    WRITER_WORKS,
    WRITER_NAPS,  /* it looks soon */
    WRITER_SLEEPS /* until it is woken */
} WriterState;

typedef struct {
    char magic[8];
    uint32_t state; /* FileState */
    uint32_t node, n_nodes;
    uint32_t process; /* how many had the node's place before, and have files; immutable */
    uint32_t zero[10];
} FileHeader;

struct History {
    /* immutable */
    char *path;
    int fd;
    uint32_t node;
    pthread_t writer;

    HistoryMapped mapped;

    /* writer only */
    off_t n_written; /* bytes of whole chunks */
    HistoryChunk *packed;

    pthread_mutex_t lock;
    pthread_cond_t given; /* for the writer */
    pthread_cond_t freed; /* the writer is done with a chunk */
    /* guarded by lock */
    FileHeader header;
    bool failed;
    HistoryChunk *first, *last; /* to be written */
    HistoryChunk *free;
    GPtrArray *blocks;            /* of BLOCK_BYTES */
    unsigned n_chunks, n_waiting; /* all; to be written */
    WriterState writer_state;
    uint64_t n_given, n_done; /* chunks that were handed over, and written or dropped */
    bool ends;

    _Atomic uint64_t phase;
    _Atomic uint32_t n_calls; /* of the engine */
};

static bool write_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        const ssize_t written = write(fd, at, n);

        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            at += written;
            n -= (size_t)written;
        }
    }
    return true;
}

/* In place, so it needs no room on the disk. With the lock. */
static void write_state(History *history, FileState state)
{
    history->header.state = state;
    if (pwrite(history->fd, &history->header, sizeof history->header, 0) < 0)
        g_warning("node %u: cannot write the state of its history in %s: %s", history->node,
                  history->path, g_strerror(errno));
}

/* With the lock. */
static void fail(History *history, const char *path, int failure)
{
    if (history->failed)
        return;
    g_warning("node %u: its history is INCOMPLETE from here on: cannot write to %s: %s",
              history->node, path, g_strerror(failure));
    history->failed = true;
    write_state(history, FILE_STATE_INCOMPLETE);
}

static void write_chunk(History *history, const HistoryChunk *chunk)
{
    int failure;

    if (!chunk->header.is_text) {
        history_pack_chunk(chunk, history->packed);
        chunk = history->packed;
    }
    const size_t n = sizeof chunk->header + chunk->header.n_bytes;
    if (write_all(history->fd, &chunk->header, n)) {
        history->n_written += (off_t)n;
        return;
    }
    failure = errno;
    if (ftruncate(history->fd, history->n_written) != 0)
        g_warning("node %u: the end of %s is no whole chunk: %s", history->node, history->path,
                  g_strerror(errno));
    pthread_mutex_lock(&history->lock);
    fail(history, history->path, failure);
    pthread_mutex_unlock(&history->lock);
}

/* With the lock. */
static void wake_writer(History *history)
{
    if (history->writer_state == WRITER_WORKS) /* and looks before it rests */
        return;
    history->writer_state = WRITER_WORKS;
    pthread_cond_signal(&history->given);
}

/* Until it is woken, or its nap is over. With the lock. */
static void rest(History *history, unsigned n_in_vain)
{
    struct timespec until;

    if (n_in_vain >= MOST_NAPS_IN_VAIN) {
        history->writer_state = WRITER_SLEEPS;
        pthread_cond_wait(&history->given, &history->lock);
    } else {
        history->writer_state = WRITER_NAPS;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += NAP_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&history->given, &history->lock, &until);
    }
    history->writer_state = WRITER_WORKS;
}

static void *run_writer(void *data)
{
    History *const history = data;
    unsigned n_in_vain = MOST_NAPS_IN_VAIN;

    pthread_mutex_lock(&history->lock);
    for (;;) {
        HistoryChunk *const chunk = history->first;

        if (chunk == NULL && history->ends)
            break;
        if (chunk == NULL) {
            rest(history, n_in_vain++);
            continue;
        }
        n_in_vain = 0;
        history->first = chunk->next;
        history->n_waiting--;
        if (!history->failed) {
            pthread_mutex_unlock(&history->lock);
            write_chunk(history, chunk);
            pthread_mutex_lock(&history->lock);
        }
        history->n_done++;
        chunk->next = history->free;
        history->free = chunk;
        pthread_cond_broadcast(&history->freed);
    }
    pthread_mutex_unlock(&history->lock);
    return NULL;
}

/* ---- its life ---- */

static void open_new(History *history, const char *folder)
{
    g_free(history->path);
    history->path = history->header.process == 0
                        ? g_strdup_printf("%s/node-%u.history", folder, history->node)
                        : g_strdup_printf("%s/node-%u-%u.history", folder, history->node,
                                          history->header.process);
    history->fd = open(history->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static bool make_file(History *history, const char *folder, bool is_again, GError **error)
{
    history->header.process = is_again;
    if (g_mkdir_with_parents(folder, 0777) == 0)
        open_new(history, folder);
    while (is_again && history->fd < 0 && errno == EEXIST &&
           history->header.process < MOST_PROCESSES) {
        history->header.process++;
        open_new(history, folder);
    }
    if (history->fd >= 0 && write_all(history->fd, &history->header, sizeof history->header))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                "the environment variable " HISTORY_VARIABLE " is \"%s\": cannot make %s: %s%s",
                folder, history->path != NULL ? history->path : "it", g_strerror(errno),
                errno == EEXIST ? "; each run needs a folder of its own" : "");
    return false;
}

static void free_block(void *block)
{
    huge_pages_free(block, BLOCK_BYTES);
}

static void free_history(History *history)
{
    g_ptr_array_unref(history->blocks);
    g_free(history->packed);
    if (history->fd >= 0)
        close(history->fd);
    history_mapped_clear(&history->mapped);
    pthread_cond_destroy(&history->given);
    pthread_cond_destroy(&history->freed);
    pthread_mutex_destroy(&history->lock);
    g_free(history->path);
    g_free(history);
}

static History *open_file(const char *folder, uint32_t node, uint32_t n_nodes, bool is_again,
                          GError **error)
{
    History *const history = g_new0(History, 1);
    pthread_condattr_t monotonic;

    history->fd = -1;
    history->blocks = g_ptr_array_new_with_free_func(free_block);
    history->packed = g_new(HistoryChunk, 1);
    history->node = node;
    history->header = (FileHeader){ .state = FILE_STATE_SILENT, .node = node, .n_nodes = n_nodes };
    memcpy(history->header.magic, HISTORY_MAGIC, sizeof history->header.magic);
    history->n_written = sizeof history->header;
    pthread_mutex_init(&history->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&history->given, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&history->freed, NULL);
    if (!make_file(history, folder, is_again, error)) {
        free_history(history);
        return NULL;
    }
    history_mapped_init(&history->mapped, history->path);
    if (log_sink_start_thread(&history->writer, run_writer, history) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "cannot start a thread for the history of node %u", node);
        free_history(history);
        return NULL;
    }
    pthread_setname_np(history->writer, "history");
    return history;
}

History *history_open(const char *folder, uint32_t node, uint32_t n_nodes, GError **error)
{
    return open_file(folder, node, n_nodes, /* is_again= */ false, error);
}

History *history_open_again(const char *folder, uint32_t node, uint32_t n_nodes, GError **error)
{
    return open_file(folder, node, n_nodes, /* is_again= */ true, error);
}

void history_close(History *history)
{
    if (history == NULL)
        return;
    pthread_mutex_lock(&history->lock);
    history->ends = true;
    wake_writer(history);
    pthread_mutex_unlock(&history->lock);
    pthread_join(history->writer, NULL);
    if (!history->failed)
        write_state(history, FILE_STATE_COMPLETE);
    free_history(history);
}

void history_begin_requests(History *history)
{
    pthread_mutex_lock(&history->lock);
    if (history->header.state == FILE_STATE_SILENT)
        write_state(history, FILE_STATE_OPEN);
    pthread_mutex_unlock(&history->lock);
}

/* ---- chunks ---- */

/* With the lock. */
static HistoryChunk *make_chunk(History *history)
{
    const unsigned n = history->n_chunks++ % BLOCK_CHUNKS;

    if (n == 0) {
        void *const block = huge_pages_take(BLOCK_BYTES);

        if (block == NULL)
            g_error("node %u: no memory for its history; the node ends here", history->node);
        g_ptr_array_add(history->blocks, block);
    }
    return (HistoryChunk *)g_ptr_array_index(history->blocks, history->blocks->len - 1) + n;
}

HistoryChunk *history_take_chunk(History *history)
{
    HistoryChunk *chunk;

    pthread_mutex_lock(&history->lock);
    while (history->free == NULL && history->n_chunks == MOST_CHUNKS && history->first != NULL)
        pthread_cond_wait(&history->freed, &history->lock);
    chunk = history->free;
    if (chunk != NULL)
        history->free = chunk->next;
    else /* more than usual if all are being filled: nobody waits for another stream */
        chunk = make_chunk(history);
    pthread_mutex_unlock(&history->lock);
    return chunk;
}

void history_give_chunk(History *history, HistoryChunk *chunk)
{
    chunk->next = NULL;
    pthread_mutex_lock(&history->lock);
    if (history->first == NULL)
        history->first = chunk;
    else
        history->last->next = chunk;
    history->last = chunk;
    history->n_given++;
    history->n_waiting++;
    if (history->writer_state == WRITER_SLEEPS || history->n_waiting >= CHUNKS_THAT_WAKE)
        wake_writer(history);
    pthread_mutex_unlock(&history->lock);
}

HistorySlot *history_take_slot(History *history, const HistoryChunkHeader *header)
{
    int failure;
    HistorySlot *const slot = history_mapped_take(&history->mapped, header, &failure);

    if (slot == NULL && failure != 0) {
        pthread_mutex_lock(&history->lock);
        fail(history, history->mapped.path, failure);
        pthread_mutex_unlock(&history->lock);
    }
    return slot;
}

/* It ends, because the writer takes chunk by chunk, and drops them once a write has failed. */
void history_flush(History *history)
{
    pthread_mutex_lock(&history->lock);
    wake_writer(history);
    for (const uint64_t n = history->n_given; history->n_done < n;)
        pthread_cond_wait(&history->freed, &history->lock);
    pthread_mutex_unlock(&history->lock);
}

uint64_t history_phase(History *history)
{
    return atomic_load(&history->phase);
}

void history_next_phase(History *history)
{
    atomic_fetch_add(&history->phase, 1);
}

/* A process in the place of a lost one has other numbers than that one. */
uint64_t history_number_call(History *history)
{
    /* relaxed: it only has to be another number each time */
    return (uint64_t)history->header.process << 32 |
           (1 + atomic_fetch_add_explicit(&history->n_calls, 1, memory_order_relaxed));
}

void history_say(History *history, const char *format, ...)
{
    HistoryChunk *const chunk = history_take_chunk(history);
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    const size_t length = strlen(text);
    const size_t n = MIN(length, HISTORY_CHUNK_BYTES - 8);
    const size_t padded = (n + 7) / 8 * 8;
    chunk->header = (HistoryChunkHeader){ .magic = HISTORY_CHUNK_MAGIC,
                                          .n_bytes = (uint32_t)padded,
                                          .is_text = 1 };
    memcpy(chunk->bytes, text, n);
    memset(chunk->bytes + n, '\n', padded - n);
    history_give_chunk(history, chunk);
}
