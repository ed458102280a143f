/* The files of a version: its manifest says which they are. */
#include "io/stream/zmq/version_fetch.h"

#include <rubato/error.h>

#include "io/store/folder_ops.h"
#include "io/store/snapshot_folder.h"

static bool fetch_parts(FileFetcher *fetcher, const ListedVersion *version,
                        const Manifest *manifest, const char *folder, GError **error)
{
    for (size_t i = 0; i < manifest->n_tables; i++) {
        const ManifestTable *const table = &manifest->tables[i];

        for (uint32_t k = 0; k < table->spec.n_parts; k++) {
            g_autofree char *path = table->parts[k].has_changes
                                        ? snapshot_folder_changes(folder, i, k, manifest->base_seed)
                                        : snapshot_folder_part(folder, i, k);

            if (!file_fetch(fetcher, version, (uint32_t)i, k, &table->parts[k].sum, path, error))
                return false;
        }
    }
    return true;
}

/* (transfer full) */
static Manifest *fetch_manifest(FileFetcher *fetcher, const ListedVersion *version,
                                const char *folder, GError **error)
{
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autofree char *text = NULL;
    g_autoptr(Manifest) manifest = NULL;
    gsize n;

    if (!file_fetch(fetcher, version, STREAM_MANIFEST, 0, NULL, path, error))
        return NULL;
    if (!g_file_get_contents(path, &text, &n, NULL)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read", path);
        return NULL;
    }
    manifest = manifest_parse(text, n, path, error);
    if (manifest == NULL)
        return NULL;
    if (manifest->seed == version->seed && manifest->base == version->base &&
        manifest->base_seed == version->base_seed)
        return g_steal_pointer(&manifest);
    questions_fail(fetcher->questions, "a manifest is not that of the version that was asked for",
                   error);
    return NULL;
}

bool version_fetch(FileFetcher *fetcher, const ListedVersion *version, MirrorFolder *mirror,
                   GError **error)
{
    g_autofree char *folder = snapshot_folder_writing(mirror->path, version->seed);
    g_autoptr(Manifest) manifest = NULL;
    bool ok;

    ok = snapshot_folder_begin(mirror->path, version->seed, error) &&
         (manifest = fetch_manifest(fetcher, version, folder, error)) != NULL &&
         fetch_parts(fetcher, version, manifest, folder, error) &&
         mirror_folder_show(mirror, version->seed, version->number, error);
    if (!ok)
        snapshot_folder_abandon(mirror->path, version->seed);
    return ok;
}
