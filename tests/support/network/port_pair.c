/* Two free ports, one after the other. */
#include "tests/support/network/port_pair.h"

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* -1: it is not free. */
static int bind_port(unsigned number, unsigned *bound)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)number) };
    socklen_t size = sizeof at;

    if (bind(fd, (const struct sockaddr *)&at, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &size) == 0) {
        *bound = ntohs(at.sin_port);
        return fd;
    }
    close(fd);
    return -1;
}

unsigned find_port_pair(void)
{
    for (;;) {
        unsigned first = 0, second = 0;
        const int fd = bind_port(0, &first), next = bind_port(first + 1, &second);

        close(fd);
        if (next < 0)
            continue;
        close(next);
        return first;
    }
}
