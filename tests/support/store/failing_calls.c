/* The linker puts these functions in the place of the system's calls. */
#include "tests/support/store/failing_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
    bool is_on, is_short, was_interrupted;
    uint64_t n_left; /* calls before the failing one */
    FailingWhich which;
    int error_number;
    const char *name; /* NULL: none has failed */
    bool is_noted;
    char noted[1 << 12];
} state;

void failing_calls_begin(uint64_t at, FailingWhich which, int error_number)
{
    state.is_on = true;
    state.n_left = at;
    state.which = which;
    state.error_number = error_number;
    state.name = NULL;
}

bool failing_calls_end(void)
{
    state.is_on = false;
    return state.name != NULL;
}

void failing_calls_be_short(bool is_short)
{
    state.is_short = is_short;
}

const char *failing_calls_name(void)
{
    return state.name != NULL ? state.name : "none";
}

void failing_calls_note(void)
{
    state.is_noted = true;
    state.noted[0] = '\0';
}

const char *failing_calls_noted(void)
{
    return state.noted;
}

static void note(const char *name)
{
    const size_t n = strlen(state.noted);

    if (state.is_noted && strcmp(name, "open") != 0 && strcmp(name, "close") != 0)
        snprintf(state.noted + n, sizeof state.noted - n, "%s ", name);
}

static bool fails(const char *name)
{
    note(name);
    if (!state.is_on)
        return false;
    if (state.n_left > 0) {
        state.n_left--;
        return false;
    }
    if (state.name == NULL)
        state.name = name;
    else if (state.which == FAILING_ONE)
        return false;
    errno = state.error_number;
    return true;
}

static bool is_interrupted(void)
{
    if (!state.is_short)
        return false;
    state.was_interrupted = !state.was_interrupted;
    errno = EINTR;
    return state.was_interrupted;
}

__typeof__(open) __real_open, __wrap_open;

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails("open") ? -1 : __real_open(path, flags, mode);
}

__typeof__(write) __real_write, __wrap_write;

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (fails("write") || is_interrupted())
        return -1;
    return __real_write(fd, bytes, state.is_short && n > 0 ? 1 : n);
}

__typeof__(writev) __real_writev, __wrap_writev;

ssize_t __wrap_writev(int fd, const struct iovec *parts, int n)
{
    if (fails("writev") || is_interrupted())
        return -1;
    for (int i = 0; state.is_short && i < n; i++)
        if (parts[i].iov_len > 0)
            return __real_write(fd, parts[i].iov_base, 1);
    return __real_writev(fd, parts, n);
}

__typeof__(pwrite) __real_pwrite, __wrap_pwrite;

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    if (fails("pwrite") || is_interrupted())
        return -1;
    return __real_pwrite(fd, bytes, state.is_short && n > 0 ? 1 : n, offset);
}

#define DEFINE_CALL(name, parameters, arguments)            \
    __typeof__(name) __real_##name, __wrap_##name;          \
                                                            \
    int __wrap_##name parameters                            \
    {                                                       \
        return fails(#name) ? -1 : __real_##name arguments; \
    }

DEFINE_CALL(fsync, (int fd), (fd))
DEFINE_CALL(mkdir, (const char *path, mode_t mode), (path, mode))
DEFINE_CALL(rename, (const char *from, const char *to), (from, to))
DEFINE_CALL(unlink, (const char *path), (path))
DEFINE_CALL(rmdir, (const char *path), (path))

/* A close that fails has closed the descriptor all the same, as with Linux. */
__typeof__(close) __real_close, __wrap_close;

int __wrap_close(int fd)
{
    const bool has_failed = fails("close");
    const int error_number = errno;
    const int closed = __real_close(fd);

    if (!has_failed)
        return closed;
    errno = error_number;
    return -1;
}
