/* Requests from outside: the files of both sides, and the public calls of the side that asks.
 *
 * Why the wait of the side that asks ends: with the answer; or when the request is gone without
 * one; or when the time is over that the caller allows. */
#include "io/store/outside_requests.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <rubato/snapshot.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/kernel_random.h"
#include "io/store/s3/s3_requests.h"
#include "io/store/store_file.h"

#define TAKE OUTSIDE_TAKE
#define TAKEN OUTSIDE_TAKEN
#define GOOD "snapshot "
#define FAILED "failed: "

enum { LOOK_MS = 50, LOOK_BUCKET_MS = 300, MOST_ANSWER = 4096 };

/* Who asks reads an answer at once, unless it has ended. In buckets they are kept as long. */
enum { KEPT_S = 10 * 60 };

/* A shared file system may show that one name is gone before it shows the other. */
enum { GONE_MS = 5000 };

/* (transfer full) */
static char *path_of(const char *directory, const char *prefix, const char *id)
{
    return g_strconcat(directory, "/", prefix, id, NULL);
}

/* ---- the run's side ---- */

/* Whether a name stands for a request that has no answer. A folder is none; and one that this
 * process may not remove stays when it has its answer, which is newer. */
static bool is_request(const char *directory, const char *name)
{
    g_autofree char *request = path_of(directory, "", name);
    g_autofree char *answer = path_of(directory, TAKEN, name + strlen(TAKE));
    struct stat asked, answered;

    if (lstat(request, &asked) != 0 || !S_ISREG(asked.st_mode))
        return false;
    return lstat(answer, &answered) != 0 || answered.st_mtim.tv_sec < asked.st_mtim.tv_sec ||
           (answered.st_mtim.tv_sec == asked.st_mtim.tv_sec &&
            answered.st_mtim.tv_nsec < asked.st_mtim.tv_nsec);
}

GPtrArray *outside_requests_list(const char *directory)
{
    if (store_is_bucket(directory))
        return s3_requests_list(directory);
    GPtrArray *const ids = g_ptr_array_new_with_free_func(g_free);
    GDir *const dir = g_dir_open(directory, 0, NULL);

    if (dir == NULL)
        return ids;
    for (const char *name; (name = g_dir_read_name(dir)) != NULL;)
        if (g_str_has_prefix(name, TAKE) && is_request(directory, name))
            g_ptr_array_add(ids, g_strdup(name + strlen(TAKE)));
    g_dir_close(dir);
    return ids;
}

bool rubato_snapshot_is_asked(const char *directory)
{
    g_return_val_if_fail(directory != NULL, false);
    if (store_is_bucket(directory))
        return s3_requests_ask(directory);
    g_autoptr(GPtrArray) ids = outside_requests_list(directory);
    return ids->len > 0;
}

static bool write_all(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    size_t n = strlen(text);
    bool ok = fd >= 0;

    while (ok && n > 0) {
        const ssize_t written = write(fd, text, n);

        if (written < 0 && errno == EINTR)
            continue;
        ok = written > 0;
        text += ok ? written : 0;
        n -= ok ? (size_t)written : 0;
    }
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    return ok;
}

static void answer_one(const char *directory, const char *id, const char *text)
{
    g_autofree char *request = path_of(directory, TAKE, id);
    g_autofree char *answer = path_of(directory, TAKEN, id);
    g_autofree char *fresh = g_strconcat(answer, ".new", NULL);

    if (access(request, F_OK) != 0)
        return; /* it was withdrawn */
    if (!write_all(fresh, text) || rename(fresh, answer) != 0)
        (void)unlink(fresh);
    (void)unlink(request);
}

void outside_requests_answer(const char *directory, const GPtrArray *ids, uint64_t number,
                             const char *failure)
{
    g_autofree char *text = failure != NULL
                                ? g_strdup_printf(FAILED "%.*s", MOST_ANSWER / 2, failure)
                                : g_strdup_printf(GOOD "%" G_GUINT64_FORMAT, number);

    if (store_is_bucket(directory)) {
        s3_requests_answer(directory, ids, text);
        return;
    }
    for (guint i = 0; i < ids->len; i++)
        answer_one(directory, g_ptr_array_index(ids, i), text);
}

/* The times of a directory and its files come from one clock, whichever node has made them; that of
 * this node may be another. A request and its answer change the directory. */
void outside_requests_tidy(const char *directory)
{
    GDir *const dir = g_dir_open(directory, 0, NULL);
    struct stat changed, status;

    if (dir == NULL)
        return;
    const bool is_known = stat(directory, &changed) == 0;
    for (const char *name; is_known && (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *path = path_of(directory, "", name);

        if (g_str_has_prefix(name, TAKEN) && stat(path, &status) == 0 &&
            changed.st_mtime - status.st_mtime > KEPT_S)
            (void)unlink(path);
    }
    g_dir_close(dir);
}

void outside_requests_stop(void)
{
    s3_requests_stop();
}

/* ---- the side that asks ---- */

static bool make_request(const char *directory, const char *id, GError **error)
{
    g_autofree char *name = g_strconcat(TAKE, id, NULL);
    g_autofree char *path = path_of(directory, TAKE, id);

    if (store_is_bucket(directory))
        return s3_requests_put(directory, name, "", error);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        close(fd);
        return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be created: %s", path,
                g_strerror(errno));
    return false;
}

static void remove_one(const char *directory, const char *prefix, const char *id)
{
    g_autofree char *name = g_strconcat(prefix, id, NULL);
    g_autofree char *path = path_of(directory, prefix, id);

    if (store_is_bucket(directory))
        (void)s3_requests_remove(directory, name, NULL);
    else
        (void)unlink(path);
}

/* Whether the request is still there. *error: nobody knows. */
static bool is_waiting(const char *directory, const char *id, GError **error)
{
    g_autofree char *name = g_strconcat(TAKE, id, NULL);
    g_autofree char *path = path_of(directory, TAKE, id);

    if (!store_is_bucket(directory))
        return access(path, F_OK) == 0;
    g_autofree char *text = s3_requests_read(directory, name, error);
    return text != NULL;
}

/* Reads an answer; false if there is none yet. */
static bool read_answer(const char *directory, const char *id, char text[MOST_ANSWER],
                        GError **error)
{
    g_autofree char *name = g_strconcat(TAKEN, id, NULL);
    g_autofree char *path = path_of(directory, TAKEN, id);

    if (store_is_bucket(directory)) {
        g_autofree char *read = s3_requests_read(directory, name, error);

        if (read != NULL)
            g_strlcpy(text, read, MOST_ANSWER);
        return read != NULL;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    ssize_t some;

    if (fd < 0)
        return false;
    while (n + 1 < MOST_ANSWER &&
           ((some = read(fd, text + n, MOST_ANSWER - 1 - n)) > 0 || (some < 0 && errno == EINTR)))
        n += some > 0 ? (size_t)some : 0;
    close(fd);
    text[n] = '\0';
    return true;
}

static bool take_answer(const char *directory, const char *text, uint64_t *number, GError **error)
{
    guint64 read;

    if (g_str_has_prefix(text, GOOD) &&
        g_ascii_string_to_unsigned(text + strlen(GOOD), 10, 1, UINT64_MAX, &read, NULL)) {
        if (number != NULL)
            *number = read;
        return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: the run could not take a snapshot: %s",
                directory,
                g_str_has_prefix(text, FAILED) ? text + strlen(FAILED) : "its answer is torn");
    return false;
}

/* Waits for the answer. A bucket that cannot be read, after all tries of the client, ends it. */
static bool await_answer(const char *directory, const char *id, double timeout_s, uint64_t *number,
                         GError **error)
{
    const int64_t began_us = g_get_monotonic_time();
    g_autoptr(GError) fault = NULL;
    int64_t gone_us = 0;
    char text[MOST_ANSWER];

    for (;;) {
        const int64_t now_us = g_get_monotonic_time();
        const bool is_gone = !is_waiting(directory, id, &fault);

        if (fault == NULL && read_answer(directory, id, text, &fault)) {
            if (!store_is_bucket(directory)) /* the run may not have been allowed to */
                remove_one(directory, TAKE, id);
            remove_one(directory, TAKEN, id);
            return take_answer(directory, text, number, error);
        }
        if (fault != NULL) {
            g_propagate_error(error, g_steal_pointer(&fault));
            return false;
        }
        if (is_gone && gone_us == 0)
            gone_us = now_us;
        if (is_gone && now_us - gone_us >= GONE_MS * 1000) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                        "%s: the run could not say how its snapshot ended; its log does",
                        directory);
            return false;
        }
        if (!is_gone && (double)(now_us - began_us) >= timeout_s * G_USEC_PER_SEC) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                        "%s: no run has taken a snapshot within %g s: does one run that takes "
                        "its snapshots there?",
                        directory, timeout_s);
            return false;
        }
        g_usleep((store_is_bucket(directory) ? LOOK_BUCKET_MS : LOOK_MS) * 1000);
    }
}

bool rubato_snapshot_ask(const char *directory, double timeout_s, uint64_t *number, GError **error)
{
    uint64_t random;
    bool ok;

    g_return_val_if_fail(directory != NULL, false);
    if (!kernel_random(&random)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "the kernel gives no random bytes: %s",
                    g_strerror(errno));
        return false;
    }
    g_autofree char *id = g_strdup_printf("%016" G_GINT64_MODIFIER "x", random);
    if (!make_request(directory, id, error))
        return false;
    ok = await_answer(directory, id, timeout_s, number, error);
    if (!ok)
        remove_one(directory, TAKE, id);
    return ok;
}
