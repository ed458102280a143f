/* The window between two nodes, and what a consistency model parks.
 *
 * Two nodes with a server each, three workers, which may be slow and fast in any order: spin tries
 * them all. A worker's iteration is a Get, an Add and a clock. The Get is a call of both servers that
 * waits, or a ticket of the other node's server that is waited for at the end alone; the Add is of that
 * server, too. What is asked of the other node travels in a queue and is charged to the window of the
 * two nodes; the sender waits until there is room. A Get that is too far ahead of the slowest worker is parked by the server until a clock
 * releases it.
 *
 *   RULE_ANSWERED  a request gives its room back when it is answered, and a clock waits for nothing:
 *                  what was done once, which locks up
 *   RULE_TAKEN     a request gives its room back when its server has taken it in, be it answered or
 *                  parked; what a worker may have unanswered of its own tickets is bounded, for each
 *                  worker alone; a worker waits for room behind its clock as well
 *
 * Each run of spin has one WINDOW (1 to 3 requests) or tries all three, one PLACE (how many of the
 * workers are on node 0) and a staleness for each table: 0 stands for BSP, which parks like SSP(0), NEVER
 * for ASP. With two tables an iteration is that of the first, then that of the second.
 *
 * What is shown: no state from which nothing goes on (an invalid end state), nothing that goes on
 * without an end (a non-progress cycle), and no room that is lost: in the end all of it is back. */

#ifndef PLACE
#define PLACE 2
#endif
#ifndef STALENESS
#define STALENESS 0
#endif
#ifndef TABLES
#define TABLES 1
#endif
#ifndef STALENESS_2
#define STALENESS_2 0
#endif
#ifndef ITERATIONS
#define ITERATIONS 2
#endif
#ifndef TICKETS
#define TICKETS 1 /* how many tickets a worker may have unanswered; 0: it has none */
#endif

#define NEVER 100
#define WORKERS 3
#define NODES 2
#define NODE_OF(worker) (worker >= PLACE -> 1 : 0)
#define OTHER_NODE (1 - NODE_OF(self))
#define BOUND(table) (table == 0 -> STALENESS : STALENESS_2)

mtype = { GET, TICKET, ADD, CLOCK };

typedef Shard {
    byte clock[WORKERS];
    byte parked_get[WORKERS];    /* 1 + the clock of a call that waits; 0: none */
    byte parked_ticket[WORKERS * ITERATIONS]; /* how many, of a worker and a clock */
};
typedef Server {
    Shard shard[TABLES];
};

Server server[NODES];

/* From the node of that number to the other: kind, table, worker, clock. */
chan queue[NODES] = [16] of { mtype, bit, byte, byte };
byte charged[NODES];    /* requests of the node that have not given their room back */
byte asked[WORKERS];    /* parts of its call that waits without an answer */
byte tickets[WORKERS];  /* parts of its tickets without an answer */
byte n_done;
byte window;

inline give_back(worker, node)
{
    if
    :: NODE_OF(worker) != node -> charged[NODE_OF(worker)]--
    :: else
    fi
}

inline find_min(node, table)
{
    min = server[node].shard[table].clock[0];
    if :: server[node].shard[table].clock[1] < min -> min = server[node].shard[table].clock[1] :: else fi;
    if :: server[node].shard[table].clock[2] < min -> min = server[node].shard[table].clock[2] :: else fi
}

/* The slowest worker's clock has moved: what may be answered now is. */
inline release(node, table)
{
    find_min(node, table);
    i = 0;
    do
    :: i < WORKERS ->
        if
        :: server[node].shard[table].parked_get[i] > 0 &&
           server[node].shard[table].parked_get[i] - 1 <= min + BOUND(table) ->
            server[node].shard[table].parked_get[i] = 0;
            asked[i]--;
#ifdef RULE_ANSWERED
            give_back(i, node)
#endif
        :: else
        fi;
        j = 0;
        do
        :: j < ITERATIONS && j <= min + BOUND(table) ->
            do
            :: server[node].shard[table].parked_ticket[i * ITERATIONS + j] > 0 ->
                server[node].shard[table].parked_ticket[i * ITERATIONS + j]--;
                tickets[i]--;
#ifdef RULE_ANSWERED
                give_back(i, node)
#endif
            :: else -> break
            od;
            j++
        :: else -> break
        od;
        i++
    :: else -> break
    od;
    i = 0;
    j = 0
}

/* What a server does with a request; it waits for nothing. */
inline handle_add(node, worker)
{
    give_back(worker, node)
}

inline handle_clock(node, table, worker, at)
{
    server[node].shard[table].clock[worker] = at;
    give_back(worker, node);
    release(node, table);
    min = 0
}

inline handle_get(node, kind, table, worker, at)
{
    find_min(node, table);
    if
    :: at <= min + BOUND(table) ->
        if :: kind == GET -> asked[worker]-- :: else -> tickets[worker]-- fi;
        give_back(worker, node)
    :: else ->
        if
        :: kind == GET -> server[node].shard[table].parked_get[worker] = at + 1
        :: else -> server[node].shard[table].parked_ticket[worker * ITERATIONS + at]++
        fi;
#ifdef RULE_TAKEN
        give_back(worker, node)
#endif
    fi;
    min = 0
}

/* A server takes what has come from the other node, and the worker's own thread what is local. */
proctype Receive(byte node)
{
    byte worker, at, min, i, j;
    bit table;
    mtype kind;

end:
    do
    :: d_step {
        queue[1 - node]?kind, table, worker, at;
        if
        :: kind == ADD -> handle_add(node, worker)
        :: kind == CLOCK -> handle_clock(node, table, worker, at)
        :: else -> handle_get(node, kind, table, worker, at)
        fi;
        kind = 0;
        table = 0;
        worker = 0;
        at = 0
    }
    od
}

inline send_away(kind, table, at)
{
    charged[NODE_OF(self)]++;
    queue[NODE_OF(self)]!kind, table, self, at
}

/* Whoever looks and then sends may go past the window by one, as others look at the same time. */
inline wait_for_room()
{
    charged[NODE_OF(self)] < window
}

/* Of both servers. The worker's own thread does what its own node's server is asked. */
inline get()
{
    wait_for_room();
    d_step {
        asked[self] = 2;
        send_away(GET, table, at);
        handle_get(NODE_OF(self), GET, table, self, at)
    };
    asked[self] == 0
}

inline get_ticket()
{
#ifdef RULE_TAKEN
    tickets[self] < TICKETS;
#endif
    wait_for_room();
    d_step {
        tickets[self]++;
        send_away(TICKET, table, at)
    }
}

inline add()
{
    wait_for_room();
    d_step { send_away(ADD, table, at) }
}

inline end_iteration()
{
    d_step {
        send_away(CLOCK, table, at + 1);
        handle_clock(NODE_OF(self), table, self, at + 1)
    }
#ifdef RULE_TAKEN
    ;
    wait_for_room()
#endif
}

proctype Work(byte self)
{
    byte at, min, i, j;
    bit table;

    do
    :: at < ITERATIONS ->
        if
        :: get()
#if TICKETS > 0
        :: get_ticket()
#endif
        fi;
        add();
#ifdef PIECES /* the Add is of two pieces, with a wait for room between them */
        add();
#endif
        end_iteration();
#if TABLES > 1
        d_step {
            if
            :: table == 0 -> table = 1
            :: else -> table = 0; at++
            fi
        }
#else
        at++
#endif
    :: else -> break
    od;
    tickets[self] == 0;
    n_done++
}

/* In the end all room is back. */
proctype Look()
{
    n_done == WORKERS && empty(queue[0]) && empty(queue[1]);
    assert(charged[0] == 0 && charged[1] == 0)
}

init
{
    atomic {
#ifdef WINDOW
        window = WINDOW;
#else
        if
        :: window = 1
        :: window = 2
        :: window = 3
        fi;
#endif
        run Receive(0);
        run Receive(1);
        run Work(0);
        run Work(1);
        run Work(2);
        run Look()
    }
}
