/* Parts that move between servers: what servers do for it. engine/parts/engine_parts.c calls this,
 * step by step; the design note is in server_parts.c.
 *
 * Threads: that of the engine's calls, one move at a time. During a move no task begins, and no
 * table is created or dropped; tasks may end. */
#ifndef RUBATO_ENGINE_SERVER_SERVER_PARTS_H
#define RUBATO_ENGINE_SERVER_SERVER_PARTS_H

#include "engine/server/server.h"

typedef struct {
    uint32_t epoch;
    RubatoModel *model;         /* NULL: it has been sent */
    struct InputSequences *had; /* of a part with replicas; else NULL */
} MovingModel;

/* Frees what belongs to it besides its model. */
void moving_model_clear(MovingModel *moved);

/* A part that was taken out of a server: the thread that moves it owns all of it. */
typedef struct {
    Server *server; /* out of which it was taken */
    uint32_t table, part;
    RubatoShard *shard;
    GArray *models;        /* of MovingModel */
    RubatoRequest *outbox; /* of the models; empty */
    bool starved;          /* the shard's alarm */
} MovingPart;

/* Takes a part out of its server: from now on it answers CALL_MOVED. (transfer full) */
MovingPart *servers_take_part(Server *server, uint32_t table, uint32_t part);

/* Puts a part into a server of this node; frees the MovingPart. */
void servers_put_part(Server *server, MovingPart *moving);

/* The server expects the state of a part from another node. The server owns the empty shard from
 * now on, even if the call fails. RUBATO_ERROR_MEMORY. */
bool servers_expect_part(Server *server, const Arrival *arrival, GError **error);

/* The first: the state is complete, and the part is here. The second: the part will not come. */
void servers_keep_arrival(Server *server);
void servers_drop_arrival(Server *server);

/* ---- moving_part.c ---- */

/* Where a part goes. */
typedef struct {
    PostOffice *office;
    uint32_t server;               /* of another node, which expects the part */
    const _Atomic bool *cancelled; /* the engine's end, set before post_office_cancel is called */
    bool (*is_lost)(void *user, uint32_t node); /* in a run that goes on; NULL: nobody asks */
    void *user;
    const char *table_name;
    uint32_t stall_ms;
    bool goes_at_once; /* without a wait for room in the window to the other node */
} PartWay;

/* How often it is looked whether a node is lost. */
#define PART_WAY_LOOK_MS 20

/* Sends the rows of a part ahead, which is in its server, while requests go on (moving_ahead.c).
 * From then on its shard notes what changes, until the second function, or until it is freed. */
bool moving_part_send_ahead(Server *server, uint32_t table, uint32_t part, const PartWay *way,
                            GError **error);
void servers_end_ahead(Server *server, uint32_t table, uint32_t part);

/* Sends the rows of a part and all that belongs to them, or of those that were sent ahead what has
 * changed since; the part is not changed. False if the
 * other server has no memory for it, its node is lost, or the run has ended. */
bool moving_part_send_rows(MovingPart *moving, const PartWay *way, GError **error);

/* Sends the models. They are gone afterwards: if a model cannot be sent, its task fails. False if
 * the other server's node is lost, or the run has ended. */
bool moving_part_send_models(MovingPart *moving, const PartWay *way, GError **error);

/* The other server's node is lost, and the part goes back to where it was: tasks whose models have
 * been sent fail, and what was parked there ends. */
void moving_part_lose(const MovingPart *moving, const PartWay *way);

/* Sends what the models have parked, in its order, at once; the other server has all else. The
 * models are gone afterwards. */
void moving_part_send_parked(MovingPart *moving, const PartWay *way);

/* Frees the part, whose models have been sent. */
void moving_part_free(MovingPart *moving);

#endif
