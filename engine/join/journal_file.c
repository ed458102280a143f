/* See journal_file.h.
 *
 * The file is a line that says what it is, and records: the length in four bytes, a checksum in
 * four, little-endian, and the bytes. A process that is killed may leave the last record in part:
 * that one was not added, and nobody has heard what follows from it. So it is cut off.
 *
 * If a record cannot be written, for lack of room on the disk or because the file has its most
 * bytes, all of it but a byte is cut off: a part of it would bring back an earlier state, and
 * without a file the run would not have begun.
 *
 * To begin again, a file is written beside it, and then has its name. A process that is killed
 * before that leaves the one, and else the other; what it leaves beside is removed by the next. If
 * the other one cannot be written, the journal goes on as it is. A lock is on a file and not on its
 * name: who has waited for neither may have opened the one that has lost its name, so a process
 * looks once it has the lock. */
#include "engine/join/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/net/link/checksum.h"
#include "io/net/link/wire.h"

#define USUAL_BYTES ((uint64_t)256 << 20)
#define KEPT_BYTES ((uint64_t)256 << 10)

enum {
    RECORD_HEAD = 8,
    GIVEN_UP_BYTES = 1,    /* what is left of it */
    MOST_TITLE_BYTES = 256 /* it is shorter */
};

struct JournalFile {
    int fd;
    char *path;
    char *beside; /* where it is written again */
    char *title;
    uint64_t bytes, max_bytes;
};

static bool fail(const JournalFile *file, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot %s the scheduler's journal: %s",
                file->path, what, g_strerror(errno));
    return false;
}

static bool write_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        const ssize_t n = write(fd, at, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static bool begin(JournalFile *file, GError **error)
{
    if (ftruncate(file->fd, 0) != 0 || !write_all(file->fd, file->title, strlen(file->title)))
        return fail(file, "write", error);
    file->bytes = strlen(file->title);
    return true;
}

static bool take_lock(const JournalFile *file, GError **error)
{
    if (flock(file->fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (errno != EWOULDBLOCK)
        return fail(file, "lock", error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                "%s: another process still writes this journal of a scheduler; it must have ended "
                "before one goes on from it",
                file->path);
    return false;
}

static int open_file(const char *path, int more)
{
    return open(path, O_RDWR | O_APPEND | O_CLOEXEC | more, S_IRUSR | S_IWUSR);
}

/* Whether the file that is open still has its name. */
static bool has_name(const JournalFile *file)
{
    struct stat open_one, named;

    return fstat(file->fd, &open_one) == 0 && stat(file->path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Once more if the file had lost its name: then the lock that it took was that of a process which
 * has begun the journal again, and has the lock on the other file until it ends. */
static bool open_locked(JournalFile *file, int more, GError **error)
{
    do {
        if (file->fd >= 0)
            close(file->fd);
        file->fd = open_file(file->path, more);
        if (file->fd < 0)
            return fail(file, "open", error);
        if (!take_lock(file, error))
            return false;
    } while (!has_name(file));
    return true;
}

static uint32_t sum_of(const void *bytes, size_t size)
{
    return (uint32_t)checksum(bytes, size, /* seed= */ 0);
}

static uint32_t load_u32(const uint8_t *at)
{
    uint32_t little;

    memcpy(&little, at, sizeof little);
    return GUINT32_FROM_LE(little);
}

/* The bytes of the record that is there as a whole; 0: none is. */
static size_t whole_record(const uint8_t *at, size_t left)
{
    if (left < RECORD_HEAD)
        return 0;
    const size_t size = load_u32(at);

    return size <= left - RECORD_HEAD && sum_of(at + RECORD_HEAD, size) == load_u32(at + 4)
               ? RECORD_HEAD + size
               : 0;
}

static bool check_title(const JournalFile *file, const uint8_t *bytes, size_t size, GError **error)
{
    const size_t title = strlen(file->title);

    if (size >= title && memcmp(bytes, file->title, title) == 0)
        return true;
    if (size == GIVEN_UP_BYTES)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "%s: the scheduler's journal was given up, as the log of the process before "
                    "says; no process can go on from it",
                    file->path);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                    "%s: this is no journal of a scheduler with this cluster file and this build "
                    "of Rubato",
                    file->path);
    return false;
}

static bool read_records(void *user, SchedulerRecordFunc take, void *taker, GError **error)
{
    JournalFile *const file = user;
    g_autoptr(GError) failure = NULL;
    g_autoptr(GMappedFile) mapped =
        g_mapped_file_new_from_fd(file->fd, /* writable= */ FALSE, &failure);
    if (mapped == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: %s", file->path, failure->message);
        return false;
    }
    const uint8_t *const bytes = (const uint8_t *)g_mapped_file_get_contents(mapped);
    const size_t size = g_mapped_file_get_length(mapped);
    size_t at = strlen(file->title), record;

    if (size == 0) /* the process before was killed when it had opened it */
        return true;
    if (!check_title(file, bytes, size, error))
        return false;
    for (; (record = whole_record(bytes + at, size - at)) > 0; at += record)
        if (!take(taker, bytes + at + RECORD_HEAD, record - RECORD_HEAD)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "%s: the record at byte %zu of the scheduler's journal makes no sense",
                        file->path, at);
            return false;
        }
    file->bytes = at;
    return ftruncate(file->fd, (off_t)at) == 0 ? true : fail(file, "cut", error);
}

static bool give_up(JournalFile *file, const char *why)
{
    g_warning("%s: %s: the scheduler goes on without its journal, so no other process can go on "
              "as the scheduler from here on",
              file->path, why);
    if (ftruncate(file->fd, GIVEN_UP_BYTES) != 0)
        g_warning("%s: cannot be cut off: %s", file->path, g_strerror(errno));
    return false;
}

/* One write: it is there, or a part at the end. */
static bool write_record(int fd, const void *record, size_t size)
{
    const uint32_t head[] = { GUINT32_TO_LE((uint32_t)size), GUINT32_TO_LE(sum_of(record, size)) };
    g_autofree char *whole = g_malloc(sizeof head + size);

    G_STATIC_ASSERT(sizeof head == RECORD_HEAD);
    memcpy(whole, head, sizeof head);
    memcpy(whole + sizeof head, record, size);
    return write_all(fd, whole, sizeof head + size);
}

static bool add_record(void *user, const void *record, size_t size)
{
    JournalFile *const file = user;

    if (size > UINT32_MAX || file->bytes + RECORD_HEAD + size > file->max_bytes) {
        g_autofree char *why = g_strdup_printf(
            "it would become larger than %" G_GUINT64_FORMAT " bytes", file->max_bytes);

        return give_up(file, why);
    }
    if (!write_record(file->fd, record, size))
        return give_up(file, g_strerror(errno));
    file->bytes += RECORD_HEAD + size;
    return true;
}

/* The file beside it, which has its name then. -1: it cannot be written. */
static int write_beside(const JournalFile *file, const void *record, size_t size)
{
    const int fd = open_file(file->beside, O_CREAT | O_TRUNC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        write_all(fd, file->title, strlen(file->title)) && write_record(fd, record, size) &&
        rename(file->beside, file->path) == 0)
        return fd;
    const int why = errno;

    if (fd >= 0) {
        close(fd);
        (void)unlink(file->beside);
    }
    errno = why;
    return -1;
}

static bool begin_again(void *user, const void *record, size_t size)
{
    JournalFile *const file = user;
    const uint64_t bytes = strlen(file->title) + RECORD_HEAD + size;
    const int fd =
        size > UINT32_MAX || bytes > file->max_bytes ? -1 : write_beside(file, record, size);

    if (fd < 0) {
        g_warning("%s: the scheduler's journal cannot be made shorter, and grows: %s", file->path,
                  bytes > file->max_bytes ? "the state is too large" : g_strerror(errno));
        return false;
    }
    close(file->fd); /* and with it goes its lock */
    file->fd = fd;
    file->bytes = bytes;
    return true;
}

JournalFile *journal_file_open(const char *path, JournalFileMode mode, const char *digest,
                               uint64_t max_bytes, GError **error)
{
    JournalFile *const file = g_new0(JournalFile, 1);

    file->path = g_strdup(path);
    file->beside = journal_file_beside(path);
    file->title = g_strdup_printf("rubato journal %u %s\n", (unsigned)WIRE_VERSION, digest);
    file->max_bytes = max_bytes > 0 ? max_bytes : USUAL_BYTES;
    file->fd = -1;
    if (!open_locked(file, mode == JOURNAL_FILE_BEGIN ? O_CREAT : 0, error) ||
        (mode == JOURNAL_FILE_BEGIN && !begin(file, error))) {
        journal_file_free(file);
        return NULL;
    }
    (void)unlink(file->beside); /* what a process has left that was killed */
    return file;
}

void journal_file_clear(const char *path)
{
    const int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* it may be a pipe */
    struct stat status;

    if (fd < 0)
        return; /* there is none, or the process that opens it says what is wrong with it */
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        ftruncate(fd, 0) != 0)
        g_warning("%s: cannot be emptied: %s", path, g_strerror(errno));
    close(fd);
}

bool journal_file_has_begun(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char bytes[MOST_TITLE_BYTES];

    if (fd < 0)
        return errno != ENOENT; /* who opens it says what is wrong with it */
    const ssize_t n = read(fd, bytes, sizeof bytes);
    const char *const end = n > 0 ? memchr(bytes, '\n', (size_t)n) : NULL;

    close(fd);
    return n != 0 && (end == NULL || end + 1 < bytes + n);
}

char *journal_file_beside(const char *path)
{
    return g_strconcat(path, ".new", NULL);
}

void journal_file_remove(JournalFile *file)
{
    /* It may have been given up, or removed by others. */
    (void)unlink(file->path);
}

void journal_file_free(JournalFile *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    g_free(file->path);
    g_free(file->beside);
    g_free(file->title);
    g_free(file);
}

SchedulerJournal journal_file_journal(JournalFile *file)
{
    return (SchedulerJournal){ .add = add_record,
                               .read = read_records,
                               .begin_again = begin_again,
                               .kept_bytes = KEPT_BYTES,
                               .user = file };
}
