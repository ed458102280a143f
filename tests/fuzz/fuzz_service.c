/* Reads arbitrary bytes as messages of services. What is taken is written again, and has to be the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "engine/services/service_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ServiceMessage message, again;

    if (service_message_read(data, size, &message) != NULL)
        return 0;
    const size_t n = service_message_size(&message);
    if (n != size)
        abort();
    g_autofree uint8_t *bytes = g_malloc(n);
    service_message_write(&message, bytes);
    if (service_message_read(bytes, n, &again) != NULL || again.kind != message.kind ||
        again.serial != message.serial || again.offset != message.offset ||
        again.n_bytes != message.n_bytes || memcmp(again.bytes, message.bytes, again.n_bytes) != 0)
        abort();
    return 0;
}
