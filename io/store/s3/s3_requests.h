/* Requests for a snapshot from outside the run (io/store/outside_requests.h), in a bucket of S3.
 *
 *   PREFIX/.take-ID    somebody asks for a snapshot
 *   PREFIX/.taken-ID   the answer
 *
 * A request to S3 may take half a minute. So those of the run are made by a thread for each
 * directory: it looks once a second, sends the answers, and removes those that nobody has read.
 * What the run asks here it knows already, or will do later; no call waits for S3. The thread
 * starts with the first call, and ends with s3_requests_stop.
 *
 * Who asks makes its requests itself, and waits.
 *
 * Threads: any. */
#ifndef RUBATO_IO_STORE_S3_S3_REQUESTS_H
#define RUBATO_IO_STORE_S3_S3_REQUESTS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- the run's side ---- */

/* The ids of the requests that were there when the thread looked last, and are not answered. None
 * if it has not looked yet. (transfer full) */
GPtrArray *s3_requests_list(const char *directory);

/* Whether a snapshot should be taken for one of them. A request counts as soon as the thread of
 * another process has seen it, too, which may be the one that answers; and again after some seconds
 * if it is still there. */
bool s3_requests_ask(const char *directory);

/* Has the thread answer them. If S3 does not take an answer, the log says so. */
void s3_requests_answer(const char *directory, const GPtrArray *ids, const char *text);

/* How long an answer stays that nobody reads; for tests. At first 10 minutes from when the thread
 * saw it: so one that came at the end of a run stays until a later run has seen it for so long. */
void s3_requests_keep_answers(int64_t ms);

/* Ends the threads when they have sent the answers; waits for them. When an engine is freed: those
 * of another engine of the process start again. */
void s3_requests_stop(void);

/* ---- the side that asks ---- */

/* Puts, reads and removes one object of the directory by its name. s3_requests_read: NULL without
 * an error if it is not there. (transfer full) */
bool s3_requests_put(const char *directory, const char *name, const char *text, GError **error);
bool s3_requests_remove(const char *directory, const char *name, GError **error);
char *s3_requests_read(const char *directory, const char *name, GError **error);

#endif
