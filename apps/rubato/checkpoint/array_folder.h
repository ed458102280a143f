/* A folder in which arrays come to be all at once. They are written into a folder within it, whose
 * name begins with a dot, and get their places when all are whole. So after a failure none of them
 * is there, and a process that is killed leaves no more than that folder.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_CHECKPOINT_ARRAY_FOLDER_H
#define APPS_RUBATO_CHECKPOINT_ARRAY_FOLDER_H

#include <glib.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct {
    const char *path;
    bool is_new;
    char *writing;    /* the folder within it */
    GPtrArray *names; /* of files that were begun there */
} ArrayFolder;

/* Makes both folders; the outer one may be there. path: stays the caller's, until it has ended.
 * After a failure there is nothing to end. */
bool array_folder_begin(ArrayFolder *folder, const char *path, GError **error);

/* A file to write to. NULL: errno says why, also if there is a file of that name already. */
FILE *array_folder_add(ArrayFolder *folder, const char *name);

/* good: the files are whole and closed, and get their places. Otherwise, or if one of them does not
 * get it, all that was made is removed; error is set in the second case alone. Returns whether they
 * are there. */
bool array_folder_end(ArrayFolder *folder, bool good, GError **error);

#endif
