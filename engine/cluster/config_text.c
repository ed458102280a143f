/* Text of cluster files, and of files with their syntax: see config_text.h.
 *
 * Thread: any; no state beyond the call. */
#include "engine/cluster/config_text.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/cluster_syntax.h"

/* Refuses a pipe, without waiting for its writer: a pipe can be read once, but every node reads the
 * file. */
static FILE *open_file(const char *path, const char *what, GError **error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    FILE *file;

    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode)) {
        close(fd);
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                    "the %s %s is a pipe, which cannot be read by every node; write a file", what,
                    path);
        return NULL;
    }
    file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot open the %s %s: %s", what, path,
                    g_strerror(errno));
    return file;
}

char *config_text_load(const char *path, const char *what, size_t *length, GError **error)
{
    FILE *file = open_file(path, what, error);
    if (file == NULL)
        return NULL;

    /* One byte more than allowed tells a file that is too large, however large it is. */
    g_autofree char *text = g_malloc(CLUSTER_MAX_FILE_BYTES + 1);
    *length = fread(text, 1, CLUSTER_MAX_FILE_BYTES + 1, file);
    const int failure = ferror(file) ? errno : 0;
    fclose(file);
    if (failure == 0)
        return g_steal_pointer(&text);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot read the %s %s: %s", what, path,
                g_strerror(failure));
    return NULL;
}

bool config_text_parse(const char *text, size_t length, const char *what,
                       const ClusterFaults *faults, ConfigReadFunc read, void *data)
{
    bool fine;
    config_t config;

    if (length > CLUSTER_MAX_FILE_BYTES)
        return cluster_refuse(faults, 1, "the file is larger than %u bytes; is this a %s?",
                              CLUSTER_MAX_FILE_BYTES, what);
    if (!cluster_syntax_check(text, length, faults->path, faults->error))
        return false;

    /* A comment on a last line without end is a syntax error to libconfig 1.5. */
    g_autofree char *copy = g_strdup_printf("%.*s\n", (int)length, text);

    config_init(&config);
    if (config_read_string(&config, copy) == CONFIG_TRUE) {
        fine = read(faults, config_root_setting(&config), data);
    } else {
        const int line = config_error_line(&config);

        fine = cluster_refuse(faults, (unsigned)MAX(line, 1), "%s", config_error_text(&config));
    }
    config_destroy(&config);
    return fine;
}
