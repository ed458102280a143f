/* The scheduler's journal in a file of its host. It is enough for a process that is started again
 * there: what was written is there also if the process is killed. Nothing is synchronised with the
 * disk, because a host that fails takes the nodes' links with it, too.
 *
 * One process at a time has the file: the lock on it ends with the process.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_JOIN_JOURNAL_FILE_H
#define RUBATO_ENGINE_JOIN_JOURNAL_FILE_H

#include "engine/scheduler/journal/scheduler_journal.h"

/* The environment variable that names the file; without it there is no journal. */
#define JOURNAL_VARIABLE "RUBATO_JOURNAL"

typedef struct JournalFile JournalFile;

typedef enum {
    JOURNAL_FILE_BEGIN, /* a new one, in the place of one that is there */
    JOURNAL_FILE_GO_ON, /* that of a process before */
} JournalFileMode;

/* digest: of the cluster file; it must be the same in both processes. max_bytes: of the file; 0:
 * the usual most. RUBATO_ERROR_IO; RUBATO_ERROR_MISMATCH: it is of another run, or of another
 * build; RUBATO_ERROR_NODE_LOST: it is of no use, because the process before could not write it to
 * the end. (transfer full) */
JournalFile *journal_file_open(const char *path, JournalFileMode mode, const char *digest,
                               uint64_t max_bytes, GError **error);

/* Empties a file that an earlier run has left, before a run begins: if the first process of this
 * run is killed before it opens the file, it has recorded nothing. A file that another process
 * writes stays as it is; who opens it says so. */
void journal_file_clear(const char *path);

/* Whether a process has recorded something there, or has given the journal up. If not, the run of
 * that process has not begun, and nobody has heard of one. */
bool journal_file_has_begun(const char *path);

/* Where it is written again: a process that is killed may leave that file. (transfer full) */
char *journal_file_beside(const char *path);

/* Removes the file once the run has ended, so that no later process takes it for its own. */
void journal_file_remove(JournalFile *file);
void journal_file_free(JournalFile *file);

/* It uses the file as long as that is open. */
SchedulerJournal journal_file_journal(JournalFile *file);

#endif
