/* Files of versions, piece by piece. */
#include "io/stream/zmq/file_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <string.h>
#include <unistd.h>

#include "io/net/monotonic.h"
#include "io/store/folder_ops.h"

#define MOST_MISSED 3 /* answers one after the other, before a version is given up */

/* A file that is fetched. */
typedef struct {
    FileFetcher *fetcher;
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
    FileFetcher *const fetcher = fetch->fetcher;
    Questions *const questions = fetcher->questions;
    StreamMessage answer;
    Taken taken = questions_receive(questions, first, &answer, error);

    if (taken == TAKEN_ANSWER) {
        const size_t at = answer.id % FETCH_MOST_WINDOW;
        const char *const wrong = find_wrong(fetch, &answer, *next);

        fetcher->is_gone = answer.kind == STREAM_MESSAGE_GONE;
        if (wrong != NULL)
            questions_fail(questions, wrong, error);
        if (wrong != NULL || !write_at(fetch, &answer, error)) {
            taken = wrong != NULL && answer.kind == STREAM_MESSAGE_BYTES && answer.offset > *next
                        ? TAKEN_LATE
                        : TAKEN_NOTHING;
        } else {
            fetch_pace_answered(&fetcher->pace, monotonic_ms() - fetch->asked_ms[at]);
            *next += answer.n;
            *is_short = answer.n < fetch->asked_bytes[at];
        }
    }
    return taken;
}

static bool ask_bytes(Fetch *fetch, uint64_t offset, uint64_t most, GError **error)
{
    FileFetcher *const fetcher = fetch->fetcher;
    Questions *const questions = fetcher->questions;
    const uint64_t id = questions_next_id(questions);

    fetch->question.id = id;
    fetch->question.offset = offset;
    fetch->question.n = (uint32_t)MIN(most - offset, fetcher->pace.n_bytes);
    fetch->asked_ms[id % FETCH_MOST_WINDOW] = monotonic_ms();
    fetch->asked_bytes[id % FETCH_MOST_WINDOW] = fetch->question.n;
    return questions_ask(questions, &fetch->question, error);
}

/* How far it is. */
typedef struct {
    uint64_t most;  /* bytes of the file, or that it may have */
    uint64_t asked; /* it has asked for all before these bytes */
    uint64_t next;  /* it has all before these */
    uint64_t first; /* the question from which on answers count */
    uint64_t n_answered;
    unsigned n_missed; /* one after the other */
    bool is_short;     /* the last answer was */
} Progress;

/* Asks for pieces, as many at a time as the pace says, and takes one. */
static Taken ask_and_take(Fetch *fetch, Progress *progress, GError **error)
{
    FileFetcher *const fetcher = fetch->fetcher;
    const uint32_t window = fetch->n_bytes != UINT64_MAX ? fetcher->pace.window : 1;

    while (progress->asked < progress->most &&
           questions_last_id(fetcher->questions) + 1 - progress->first - progress->n_answered <
               window) {
        if (!ask_bytes(fetch, progress->asked, progress->most, error))
            return TAKEN_LATE;
        progress->asked += fetch->question.n;
    }
    return take_bytes(fetch, progress->first, &progress->next, &progress->is_short, error);
}

/* What is under way counts no more. */
static void ask_again(const Fetch *fetch, Progress *progress)
{
    fetch_pace_missed(&fetch->fetcher->pace);
    progress->first = questions_last_id(fetch->fetcher->questions) + 1;
    progress->n_answered = 0;
    progress->asked = progress->next;
    progress->n_missed++;
}

/* If no answer comes in time, or the connection is lost, it asks again from there on; answers to
 * the questions before are dropped. */
static bool fetch_bytes(Fetch *fetch, GError **error)
{
    Questions *const questions = fetch->fetcher->questions;
    const bool is_known = fetch->n_bytes != UINT64_MAX;
    Progress progress = { .most = is_known ? fetch->n_bytes : MOST_MANIFEST,
                          .first = questions_last_id(questions) + 1 };

    while (is_known ? progress.next < progress.most : !progress.is_short) {
        GError *fault = NULL;

        if (progress.next >= progress.most)
            return questions_fail(questions, "a manifest has no end", error);

        const Taken taken = ask_and_take(fetch, &progress, &fault);

        if (taken == TAKEN_ANSWER) {
            progress.n_answered++;
            progress.n_missed = 0;
        } else if (taken == TAKEN_LATE && progress.n_missed < MOST_MISSED) {
            g_clear_error(&fault);
            ask_again(fetch, &progress);
        } else {
            g_propagate_error(error, fault);
            return false;
        }
        if (is_known && progress.is_short && progress.next < progress.most)
            return questions_fail(questions, "a file is shorter than it has to be", error);
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

bool file_fetch(FileFetcher *fetcher, const ListedVersion *version, uint32_t table, uint32_t part,
                const BlockFileSum *sum, const char *path, GError **error)
{
    Fetch fetch = { .fetcher = fetcher,
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
