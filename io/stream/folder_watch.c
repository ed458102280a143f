/* Waits for names in a directory. */
#include "io/stream/folder_watch.h"

#include <glib.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define WATCHED_MS 200
#define UNWATCHED_MS 50

void folder_watch_init(FolderWatch *watch, const char *directory)
{
    watch->directory = g_strdup(directory);
    watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    watch->watch = -1;
}

void folder_watch_clear(FolderWatch *watch)
{
    if (watch->fd >= 0)
        close(watch->fd);
    g_free(watch->directory);
}

/* Reads all that the kernel tells. A directory that is gone may come again, as another one. */
static void read_events(FolderWatch *watch)
{
    _Alignas(struct inotify_event) char events[4096];
    ssize_t n;

    while (watch->fd >= 0 && (n = read(watch->fd, events, sizeof events)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *const event = (const void *)(events + at);

            if ((event->mask & IN_IGNORED) != 0 && event->wd == watch->watch)
                watch->watch = -1;
            at += (ssize_t)(sizeof *event + event->len);
        }
}

void folder_watch_begin(FolderWatch *watch)
{
    read_events(watch);
    if (watch->fd >= 0 && watch->watch < 0)
        watch->watch = inotify_add_watch(watch->fd, watch->directory, IN_MOVED_TO | IN_DELETE_SELF);
}

void folder_watch_wait(FolderWatch *watch, int64_t timeout_ms)
{
    const int64_t most_ms = watch->watch >= 0 ? WATCHED_MS : UNWATCHED_MS;
    struct pollfd ready = { .fd = watch->fd, .events = POLLIN };

    (void)poll(&ready, 1, (int)CLAMP(timeout_ms, 0, most_ms));
}
