/* A change of a table with replicas, for whose answer its worker does not wait: an Add, a tuning or
 * an announcement.
 *
 * If its server is lost, it has to be sent again (docs/replication.md). So a copy of it waits on
 * the heap for the answer, which is its acknowledgement. What a server thinks of it, that says to
 * the task: so the answer itself says nothing more.
 *
 * Threads: the client's worker; the copy's end any. */
#include "tables/client/client_private.h"

typedef struct {
    Call call; /* first: its end finds the rest */
    Message *message;
} KeptChange;

static void end_change(Call *call)
{
    KeptChange *const change = (KeptChange *)call;

    g_free(change->message);
    g_free(change);
}

bool table_client_tell_and_keep(TableClient *client, const Message *message)
{
    KeptChange *const change = g_new(KeptChange, 1);

    change->message = message_copy_request(message);
    if (change->message == NULL) {
        g_free(change);
        return false;
    }
    call_begin(&change->call, end_change);
    call_add_parts(&change->call, 1);
    change->message->call = &change->call;
    const bool is_sent =
        post_office_tell(client->route->office, change->message) != POST_OFFICE_UNSENT;

    call_sent(&change->call);
    return is_sent;
}
