/* The place of a reader's worker, behind a lock that is held for a copy alone. */
#include "io/data/deal/reader_progress.h"

void reader_progress_init(ReaderProgress *progress)
{
    const int64_t now_us = g_get_monotonic_time();

    pthread_mutex_init(&progress->lock, NULL);
    progress->position = (ReaderPosition){ .begun_us = now_us, .told_us = now_us };
}

void reader_progress_clear(ReaderProgress *progress)
{
    pthread_mutex_destroy(&progress->lock);
}

void reader_progress_tell(ReaderProgress *progress, const ReaderPosition *position)
{
    pthread_mutex_lock(&progress->lock);
    progress->position = *position;
    pthread_mutex_unlock(&progress->lock);
}

ReaderPosition reader_progress_get(ReaderProgress *progress)
{
    pthread_mutex_lock(&progress->lock);
    const ReaderPosition position = progress->position;
    pthread_mutex_unlock(&progress->lock);
    return position;
}
