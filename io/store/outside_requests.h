/* Requests for a snapshot that come from outside the run, by files in the directory of its
 * snapshots:
 *
 *   DIR/.take-ID    somebody asks for a snapshot
 *   DIR/.taken-ID   the answer: "snapshot 7", or "failed: " and why
 *
 * Whoever asks makes the first file, waits for the second, and removes it. The run answers with the
 * first snapshot that begins after the request. An answer is there before its request is gone. So a
 * request that is gone without an answer will have none.
 *
 * Who may write into the directory may ask. That needs no secret: they could also remove its
 * snapshots.
 *
 * In a bucket of S3 they are objects of these names (s3/s3_requests.h), and no call of the run's
 * side waits for S3.
 *
 * Threads: any. */
#ifndef RUBATO_IO_STORE_OUTSIDE_REQUESTS_H
#define RUBATO_IO_STORE_OUTSIDE_REQUESTS_H

#include <glib.h>
#include <stdint.h>

#define OUTSIDE_TAKE ".take-"
#define OUTSIDE_TAKEN ".taken-"

/* The ids of the requests that wait for an answer. (transfer full) */
GPtrArray *outside_requests_list(const char *directory);

/* Answers requests with the snapshot's number, or with why there is none (failure not NULL). What
 * cannot be answered, for example on a full disk, is removed. */
void outside_requests_answer(const char *directory, const GPtrArray *ids, uint64_t number,
                             const char *failure);

/* Removes answers that nobody has read ten minutes before the directory changed last, and what is
 * left of one that was never whole. Nothing of a bucket, where a thread does so (s3_requests.h). */
void outside_requests_tidy(const char *directory);

/* When an engine is freed: sends the answers that are left, and ends the threads that look into
 * buckets. */
void outside_requests_stop(void);

#endif
