/* Links that do nothing: see idle_links.h. */
#include "tests/support/collectives/idle_links.h"

void *idle_new_message(void *user, uint32_t node, const TensorMessage *message, void **bytes)
{
    (void)user;
    (void)node;
    return *bytes = g_malloc(message->n_bytes);
}

void idle_forget(void *user, uint32_t node, void *message)
{
    (void)user;
    (void)node;
    g_free(message);
}

void *idle_keep(void *user, void *message, const void **bytes)
{
    (void)user;
    *bytes = message;
    return message;
}

void idle_drop(void *user, void *message)
{
    (void)user;
    g_free(message);
}

void idle_tell(void *user, const char *notices)
{
    (void)user;
    (void)notices;
}

bool idle_is_full(void *user, uint32_t node)
{
    (void)user;
    (void)node;
    return false;
}

bool idle_wait_room(void *user, uint32_t node, bool (*is_over)(void *data), void *data,
                    int timeout_ms)
{
    (void)user;
    (void)node;
    (void)is_over;
    (void)data;
    (void)timeout_ms;
    return true;
}

bool idle_yes(void *user)
{
    (void)user;
    return true;
}
