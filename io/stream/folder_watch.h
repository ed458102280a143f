/* Waits until something gets a new name in a directory, such as a version that is whole.
 *
 * The kernel tells of it where it can (inotify). On file systems of other machines it does not, and
 * a directory need not be there yet. So a wait ends after 200 ms at the latest, or 50 ms while
 * nothing is told.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STREAM_FOLDER_WATCH_H
#define RUBATO_IO_STREAM_FOLDER_WATCH_H

#include <stdint.h>

typedef struct {
    char *directory;
    int fd;    /* -1: the kernel tells nothing */
    int watch; /* -1: the directory is not watched */
} FolderWatch;

void folder_watch_init(FolderWatch *watch, const char *directory);
void folder_watch_clear(FolderWatch *watch);

/* Before a look into the directory: what comes after this ends the next wait. */
void folder_watch_begin(FolderWatch *watch);

/* Waits for timeout_ms at most. */
void folder_watch_wait(FolderWatch *watch, int64_t timeout_ms);

#endif
