/* The bytes of requests to a table of ragged rows, as a server takes them of another node: what is
 * not refused is done, on a shard that keeps its rows between them.
 *
 * The input is a row of calls: a byte that says which request it claims to be and what is put
 * right, two bytes of length, the call's bytes. Few random bytes would pass the first checks. */
#include <stdint.h>
#include <string.h>

#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/shard/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PUT_RIGHT = 8, HEADER_BYTES = 80, N_KEYS = 64, FIRST_KEY = 10, WHICH = 7 };

static const char *const names[] = { "ragged.get",    "ragged.lengths",
                                     "ragged.add",    "ragged.assign",
                                     "ragged.append", "ragged.erase",
                                     "norm",          "" };

/* A name, and the sizes that belong to the first keys. */
static void put_right(uint8_t kind, uint64_t *bytes, size_t n)
{
    uint64_t header[HEADER_BYTES / 8];

    if (n < HEADER_BYTES)
        return;
    memcpy(header, bytes, HEADER_BYTES);
    memset(header, 0, 32);
    memcpy(header, names[kind & WHICH], strlen(names[kind & WHICH]));
    if ((kind & PUT_RIGHT) != 0) {
        header[6] %= 8; /* keys */
        header[5] = 0;  /* not all rows */
        header[7] = FIRST_KEY + header[7] % (N_KEYS - 8);
        header[8] = 0; /* a run */
        header[4] = n - HEADER_BYTES;
    }
    memcpy(bytes, header, HEADER_BYTES);
}

static void ask(RubatoShard *shard, const void *bytes, size_t n)
{
    HandlerCall call = { 0 };
    RubatoKeys keys;
    const char *name;

    if (handler_call_read(bytes, n, &call, &keys, &name) != NULL)
        return;
    call.ops = handler_find(name);
    if (call.ops == NULL || handler_find_fault(shard, &call, &keys) != NULL)
        return;
    handler_run(&call, shard, &keys);
    handler_answer_clear(&call.answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const RubatoTableSpec spec = { .name = "lists",
                                   .dtype = size % 2 == 0 ? RUBATO_U8 : RUBATO_F64,
                                   .shape = RUBATO_SHAPE_RAGGED,
                                   .first_key = FIRST_KEY,
                                   .n_keys = N_KEYS };
    RubatoShard *const shard = shard_new(&spec, FIRST_KEY, N_KEYS, NULL);

    while (size >= 3) {
        const size_t n = MIN((size_t)data[1] | (size_t)data[2] << 8, size - 3);
        uint64_t *const bytes = g_malloc(n + 8); /* aligned, as a server's are */

        memcpy(bytes, data + 3, n);
        put_right(data[0], bytes, n);
        ask(shard, bytes, n);
        g_free(bytes);
        data += 3 + n;
        size -= 3 + n;
    }
    shard_free(shard);
    return 0;
}
