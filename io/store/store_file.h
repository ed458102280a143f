/* A file of a snapshot, wherever it lies: in a directory, or in a bucket of S3. Its path says
 * where.
 *
 * A file is written from its beginning to its end, and read once it is whole.
 *
 * Errors: RUBATO_ERROR_IO or _FORMAT; they name the path.
 *
 * Threads: one at a time writes; several may read at a time. */
#ifndef RUBATO_IO_STORE_STORE_FILE_H
#define RUBATO_IO_STORE_STORE_FILE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct StoreFile StoreFile;

typedef struct {
    /* Creates a file; one that is there may be an error. NULL: error. (transfer full) */
    StoreFile *(*create)(const char *path, GError **error);

    /* Writes bytes from two places, one behind the other. */
    bool (*append)(StoreFile *file, const void *head, size_t n_head, const void *rest,
                   size_t n_rest, GError **error);

    /* Has some more of the bytes taken where no crash takes them from, as many as that takes some
     * milliseconds for; sets whether there are more. NULL: finish does it with all of them. */
    bool (*settle)(StoreFile *file, bool *has_more, GError **error);

    /* All bytes are where no crash takes them from; if is_for_kernel, no crash of the process. */
    bool (*finish)(StoreFile *file, GError **error);

    /* Opens a whole file; sets its size. NULL: error. (transfer full) */
    StoreFile *(*open)(const char *path, uint64_t *n_bytes, GError **error);

    /* Reads n bytes, or fewer if the file ends before. Any thread. */
    bool (*read)(StoreFile *file, uint64_t offset, void *bytes, size_t n, size_t *n_read,
                 GError **error);

    /* Of both. A file that was not finished is not there, or its folder goes as a whole. */
    void (*close)(StoreFile *file);
} StoreFileOps;

/* At the beginning of the struct of each kind. */
struct StoreFile {
    const StoreFileOps *ops;
    char *path;         /* the struct's own */
    bool is_for_kernel; /* finish does not wait for the disk: the kernel writes it when it likes */
    bool is_held;       /* append does not wait for the disk either, as far as there is memory */
};

extern const StoreFileOps directory_file_ops;
extern const StoreFileOps s3_file_ops;

/* Whether a path begins with s3:// */
bool store_is_bucket(const char *path);

/* As the path says. */
StoreFile *store_file_create(const char *path, GError **error);
StoreFile *store_file_open(const char *path, uint64_t *n_bytes, GError **error);

/* NULL is allowed. */
void store_file_close(StoreFile *file);

#endif
