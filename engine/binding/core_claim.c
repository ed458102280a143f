/* Which processors this process uses: see core_claim.h. */
#include "engine/binding/core_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "io/number_text.h"

#define MOST_PROCESSORS 65536u

struct CoreClaim {
    int fd; /* the locks are this descriptor's */
};

char *core_claim_path(void)
{
    return g_strdup_printf("/dev/shm/rubato-cores-%u", (unsigned)getuid());
}

/* False: another claim has it. A lock that fails for another reason tells nothing. */
static bool claim_processor(const CoreClaim *claim, uint64_t processor)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)processor, .l_len = 1
    };

    return fcntl(claim->fd, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

/* Reads "3" or "0-3". */
static bool read_range(char *text, uint64_t *first, uint64_t *last)
{
    char *const dash = strchr(text, '-');

    if (dash != NULL)
        *dash = '\0';
    return number_text_read(text, 0, MOST_PROCESSORS, first) &&
           number_text_read(dash != NULL ? dash + 1 : text, *first, MOST_PROCESSORS, last);
}

static void append_range(GString *text, uint64_t first, uint64_t end)
{
    if (first == end)
        return;
    g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, text->len > 0 ? "," : "", first);
    if (end - first > 1)
        g_string_append_printf(text, "-%" G_GUINT64_FORMAT, end - 1);
}

/* Appends those that another claim has. */
static void claim_range(const CoreClaim *claim, uint64_t first, uint64_t last, GString *taken)
{
    uint64_t begin = first; /* of those that are taken, up to the present one */

    for (uint64_t at = first; at <= last; at++)
        if (claim_processor(claim, at)) {
            append_range(taken, begin, at);
            begin = at + 1;
        }
    append_range(taken, begin, last + 1);
}

CoreClaim *core_claim_new(const char *path, const char *processors, char **taken)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    g_auto(GStrv) ranges = g_strsplit(processors, ",", -1);
    GString *const found = g_string_new(NULL);
    CoreClaim *claim = NULL;

    if (fd >= 0) {
        claim = g_new(CoreClaim, 1);
        claim->fd = fd;
    }
    for (char **range = ranges; claim != NULL && *range != NULL; range++) {
        uint64_t first, last;

        if (read_range(*range, &first, &last))
            claim_range(claim, first, last, found);
    }
    *taken = g_string_free(found, found->len == 0);
    return claim;
}

void core_claim_free(CoreClaim *claim)
{
    struct flock all = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

    if (claim == NULL)
        return;
    (void)fcntl(claim->fd, F_OFD_SETLK, &all); /* a forked process may have the descriptor, too */
    close(claim->fd);
    g_free(claim);
}
