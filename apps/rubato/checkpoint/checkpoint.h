/* The command `rubato checkpoint`.
 *
 *   checkpoint.c         the command line; take, list, verify, show, compact
 *   checkpoint_diff.c    what differs between two snapshots
 *   checkpoint_export.c  tables as NumPy arrays
 *   array_folder.c       … which come to be all at once
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_CHECKPOINT_H
#define APPS_RUBATO_CHECKPOINT_H

#include <rubato/rubato.h>

/* What `rubato help checkpoint` prints. (transfer full) */
GOptionContext *checkpoint_new_context(void);

/* argv[0] is the command. Returns the exit code. */
int checkpoint_command(int argc, char **argv);

/* Prints what differs between two snapshots. *same: nothing does. */
bool checkpoint_diff(const RubatoSnapshot *left, const RubatoSnapshot *right, bool *same,
                     GError **error);

/* Writes all tables of a snapshot into a folder, which is created. A file that is there already is
 * an error. After a failure none of its arrays is there. */
bool checkpoint_export(const RubatoSnapshot *snapshot, const char *path, GError **error);

#endif
