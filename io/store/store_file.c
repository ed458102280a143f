/* Which kind of file a path means. */
#include "io/store/store_file.h"

bool store_is_bucket(const char *path)
{
    return g_str_has_prefix(path, "s3://");
}

static const StoreFileOps *find_ops(const char *path)
{
    return store_is_bucket(path) ? &s3_file_ops : &directory_file_ops;
}

StoreFile *store_file_create(const char *path, GError **error)
{
    return find_ops(path)->create(path, error);
}

StoreFile *store_file_open(const char *path, uint64_t *n_bytes, GError **error)
{
    return find_ops(path)->open(path, n_bytes, error);
}

void store_file_close(StoreFile *file)
{
    if (file != NULL)
        file->ops->close(file);
}
