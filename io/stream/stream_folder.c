/* The disk of a stream's directory. */
#include "io/stream/stream_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <unistd.h>

bool stream_folder_sync(const char *directory, GError **error)
{
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = fd >= 0 && syncfs(fd) == 0;

    if (!ok)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be synchronised: %s",
                    directory, g_strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok;
}
