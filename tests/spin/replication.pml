/* Parts with replicas: what docs/replication.md says, tried in all orders.
 *
 * Three nodes and one part. Node 0 is the part's primary at first; node 1 is a replica, and node 2 too if
 * there are two. Workers are on nodes 0 to 2: each adds, a worker may tell a clock at its end, and worker 2
 * may get once. The scheduler declares nodes lost, whenever it likes. A lost node does not stop: it goes on as
 * long as anything that it does can make a difference, since it may only be slow or cut off. A node that has
 * died is one that takes none of these steps.
 *
 * An input of the part is an Add, here its worker's number, or a clock, NODES + that number. Adds of a worker
 * are numbered from 1. The log is for the properties, and for what a new primary passes on; the state is `had` and
 * `clocked`.
 *
 * Where node 0 is drained, the scheduler first has the primary make a replica on each node that has none, from an
 * image, while inputs go on; then it hands the part over to one of the replicas. Both go on after losses, whenever
 * these come. A part that moves by itself does the same.
 *
 * What is shown, in every order of steps:
 * - no Add is applied twice, or before an earlier one of its worker;
 * - no Add is lost that was acknowledged, or that a Get has shown to a live worker;
 * - a map, which has a number, has one primary;
 * - a live worker's Get sees all Adds that were acknowledged when it began: no deposed primary answers it;
 * - a clock counts only once every Add before it has come;
 * - replicas have the same inputs in the same order;
 * - whatever is lost, the workers that live come to their end, or the run ends because the part is lost;
 * - a node that is drained has nothing of the part in the end, unless it is lost, or both others are.
 *
 * The environment says which case is explored (see tests/spin/test_replication_model.sh), and which guard is
 * left out. So one program does for all. */
#define NODES 3
#define MOST 8 /* inputs of the part: all Adds and clocks, and the last one of each hand-over */
#define NUMBERS 9
#define NONE 255

/* The case. */
hidden byte replicas, losses;
hidden byte adds[NODES];
hidden byte with_clock, with_get; /* worker 2 does so */
hidden byte without;              /* the guard that is left out */
hidden byte drains;               /* node 0 is drained, */
hidden byte copies;               /* and replicas are made for that, and after losses */
hidden byte with_news; /* nodes hear of a loss before they have done what was ordered for an earlier one */

#define DEDUPE 1       /* a primary drops what it has had */
#define LATE_ACK 2     /* an Add is acknowledged when all replicas have it */
#define LATE_ROWS 3    /* a Get's answer leaves when all replicas have what it shows */
#define DEAF 4         /* nothing is taken in from a lost node */
#define LONGEST 5      /* the replica with the most inputs becomes the primary */
#define TAIL 6         /* it passes on what other replicas have missed */
#define CLOCK_NUMBER 7 /* a clock counts if it was told by the primary's map */
#define RESEND 8       /* workers send again what was not acknowledged */
#define ALL_CLOSED 9   /* a primary begins when every live node has closed its map */
#define FENCES 10      /* CLOSE waits until the primary that is to leave has had what was sent to it */
#define SETTLES 11     /* another one begins when all replicas have the last input of the one that leaves */
#define LEAVES 12      /* who has handed the part over answers no Get */
#define ALL_PROMOTED 13 /* nodes open their maps when the old primary has left the part, too */
#define LEFT 14        /* what its node has not answered is sent again if that node is lost then */
#define WHOLE_FIRST 15 /* a replica that is made is listed when it knows that it counts */
#define FORGETS 16     /* one that is not listed is dropped before another CLOSE */

mtype = { ADD, GET, ACK, ROWS, FEED, HAS, CLOCK, MOVED, IMAGE, WHOLE, HEARD };
mtype = { CLOSE, PROMOTE, OPEN, CLOSED, PROMOTED, OPENED };
mtype = { EXPECT, EXPECTED, COPY, COPIED, SETTLE, SETTLED, GIVE, GIVEN, FORGET };

#define IS_CLOCK(input) (input >= NODES)
#define LAST (2 * NODES) /* the last input of a primary that hands the part over; it changes nothing */
#define ALL 254          /* a replica that has all inputs */

typedef Node {
    /* the map */
    byte number;
    byte primary;
    bit closed;
    byte deaf; /* a bit for each lost node that it knows of */
    byte fences; /* the number of the CLOSE that waits for the primary that is to leave; 0: none */

    /* the part */
    byte part;  /* NO_PART, or EXPECTS its image, or HAS_PART */
    bit whole;  /* listed in CLOSE */
    byte made;  /* the number of the map by which it was made */
    bit serves; /* as its primary */
    bit has_last; /* it has passed its last input on, and takes no more; */
    byte settles; /* by this number it waits until replicas have that; 0: it does not */
    byte n;     /* inputs that it has had */
    byte log[MOST];
    byte had[NODES]; /* Adds, by worker: part of the state */
    bit clocked[NODES];

    /* of a primary */
    byte has[NODES];      /* how many inputs a replica has; NONE: it is no replica that counts */
    byte copying[NODES];  /* the number of the map by which a replica is made there; 0: none is */
    byte told[NODES];     /* acknowledged Adds, by worker */
    bit holds[NODES];     /* an answer, by worker, */
    byte holds_at[NODES]; /* for which replicas need so many inputs */

    /* the worker */
    byte sent;
    byte acked;
    bit clock;
    byte asked; /* 0: not yet; 1: its Get waits; 2: answered; 3: to be sent again */
    byte get_at; /* where the Get waits */
    byte left_at;   /* the primary that has handed the part over; NONE: none has */
    byte left_upto; /* Adds that were sent to it */
};

#define NO_PART 0
#define EXPECTS 1
#define HAS_PART 2

Node node[NODES];

/* the scheduler */
byte number = 1;
byte lost; /* bits */
byte gone; /* those whom every other node has left: what they do makes no difference */
bit handed; /* node 0 has nothing of the part */
bit over;  /* no live node has the part: the run ends, and says so */

/* what the properties speak of */
byte needed[NODES];         /* Adds that were acknowledged when the Get of worker 2 began */
byte primary_of[NUMBERS]; /* by number of the map; NONE: there is none yet */
byte shown[NODES];          /* Adds that an answer has shown */

/* Scratch: not part of a state, so each step begins and ends with it clear. */
hidden byte i, j, k, m, safe, resent, x, y, z;
hidden byte input;
hidden byte counts[NODES];
hidden byte a1, a2, a3, a4, b1, b2, b3;
hidden mtype kind;

chan link[9] = [8] of { mtype, byte, byte, byte };
chan order[NODES] = [4] of { mtype, byte, byte, byte, byte };
chan news[NODES] = [2] of { byte }; /* lost nodes, as bits: ahead of what is ordered for them */
chan report = [10] of { mtype, byte, byte, byte };

#define LINK(from, to) link[(from) * NODES + (to)]
#define BIT(x) (1 << (x))
#define IS_DEAF(x, to) ((node[x].deaf >> (to)) & 1)
#define IS_GONE(from, to) (IS_DEAF(to, from) || ((gone >> (to)) & 1) || ((gone >> (from)) & 1))
#define IS_LOST(x) ((lost >> (x)) & 1)

#define MAY_ACT(x) (!((gone >> (x)) & 1) && !node[x].closed)
/* A closed map holds up no Get for which its worker waits. After a loss this makes no difference. */
#define MAY_ASK(x) (!((gone >> (x)) & 1) && (drains || !node[x].closed))

inline send(to, kind, a, b, c)
{
    if
    :: IS_GONE(self, to)
    :: else ->
        assert(nfull(LINK(self, to)));
        LINK(self, to)!kind, a, b, c
    fi
}

/* What is on a link that nobody takes in any more makes no difference. */
inline drain(from, to)
{
    do
    :: len(LINK(from, to)) > 0 -> LINK(from, to)?kind, b1, b2, b3
    :: else -> break
    od;
    kind = 0;
    b1 = 0;
    b2 = 0;
    b3 = 0
}

/* ---- a part's primary ---- */

/* Adds, by worker, among the first inputs. */
inline count(upto)
{
    counts[0] = 0;
    counts[1] = 0;
    counts[2] = 0;
    k = 0;
    do
    :: k < upto ->
        if
        :: !IS_CLOCK(node[self].log[k]) -> counts[node[self].log[k]]++
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* How many inputs all replicas have. */
inline find_safe()
{
    safe = node[self].n;
    k = 0;
    do
    :: k < NODES ->
        if
        :: node[self].has[k] < safe -> safe = node[self].has[k]
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* Lets go what replicas have now. */
inline settle()
{
    find_safe();
    if
    :: without == LATE_ACK -> count(node[self].n)
    :: else -> count(safe)
    fi;
    i = 0;
    do
    :: i < NODES ->
        if
        :: counts[i] > node[self].told[i] ->
            node[self].told[i] = counts[i];
            send(i, ACK, counts[i], 0, 0)
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < NODES ->
        if
        :: node[self].holds[i] && (node[self].holds_at[i] <= safe || without == LATE_ROWS) ->
            node[self].holds[i] = 0;
            count(node[self].holds_at[i]);
            node[self].holds_at[i] = 0;
            send(i, ROWS, counts[0], counts[1], counts[2])
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    if
    :: node[self].settles && (safe == node[self].n || without == SETTLES) ->
        report!SETTLED(node[self].settles, self, 0);
        node[self].settles = 0
    :: else
    fi;
    safe = 0;
    counts[0] = 0;
    counts[1] = 0;
    counts[2] = 0
}

inline feed(to, position)
{
    send(to, FEED, position, node[self].log[position], 0)
}

/* The primary has an input: applies it, and passes it on. */
inline put(what)
{
    if
    :: what == LAST
    :: what != LAST && IS_CLOCK(what) -> node[self].clocked[what - NODES] = 1
    :: else -> node[self].had[what]++
    fi;
    node[self].log[node[self].n] = what;
    node[self].n++
}

inline put_and_feed()
{
    put(input);
    input = NONE;
    j = 0;
    do
    :: j < NODES ->
        if
        :: node[self].has[j] != NONE || node[self].copying[j] -> feed(j, node[self].n - 1)
        :: else
        fi;
        j++
    :: else -> break
    od;
    j = 0
}

inline take_add(worker, sequence)
{
    if
    :: sequence <= node[self].had[worker] && without != DEDUPE -> /* sent again: it has it */
        if
        :: drains && node[self].told[worker] >= sequence -> node[self].told[worker] = sequence - 1
        :: else
        fi
    :: else ->
        assert(sequence == node[self].had[worker] + 1); /* neither twice nor out of order */
        input = worker
    fi
}

inline take_clock(worker, by)
{
    if
    :: node[self].serves && !node[self].has_last && !node[self].clocked[worker] &&
       (by == node[self].number || without == CLOCK_NUMBER) ->
        assert(node[self].had[worker] == adds[worker]); /* a clock is not early */
        input = worker + NODES
    :: else
    fi
}

inline take_get(worker)
{
    node[self].holds[worker] = 1;
    node[self].holds_at[worker] = node[self].n
}

/* ---- a replica ---- */

inline take_feed(from, position, what)
{
    if
    :: node[self].part != HAS_PART /* of an earlier replica */
    :: node[self].part == HAS_PART && position < node[self].n -> assert(node[self].log[position] == what)
    :: else ->
        assert(position == node[self].n);
        put(what)
    fi;
    if
    :: node[self].part == HAS_PART -> send(from, HAS, node[self].n, node[self].made, 0)
    :: else
    fi
}

/* The first inputs of the primary's log do not change. */
inline take_image(from, made_by, upto)
{
    if
    :: node[self].part == EXPECTS && node[self].made == made_by ->
        m = 0;
        do
        :: m < upto -> put(node[from].log[m]); m++
        :: else -> break
        od;
        m = 0;
        node[self].part = HAS_PART;
        node[self].whole = (without == WHOLE_FIRST);
        send(from, HAS, node[self].n, made_by, 0)
    :: else
    fi
}

inline take_whole(from, made_by)
{
    if
    :: node[self].part == HAS_PART && node[self].made == made_by ->
        node[self].whole = 1;
        send(from, HEARD, made_by, 0, 0)
    :: else
    fi
}

/* What belongs to an earlier replica there names another number. A first position counts. */
inline take_has(from, held, made_by)
{
    if
    :: node[self].serves && node[self].copying[from] && node[self].copying[from] == made_by &&
       node[self].has[from] == NONE ->
        node[self].has[from] = 0;
        send(from, WHOLE, made_by, 0, 0)
    :: else
    fi;
    if
    :: node[self].serves && node[self].has[from] != NONE && node[self].has[from] < held &&
       (node[self].copying[from] == 0 || node[self].copying[from] == made_by) ->
        assert(held <= node[self].n);
        node[self].has[from] = held;
        k = 0;
        do /* a replica is the same, unless it was dropped meanwhile */
        :: k < held && node[from].part == HAS_PART && node[from].made == made_by ->
            assert(node[from].log[k] == node[self].log[k]);
            k++
        :: else -> break
        od;
        k = 0
    :: else
    fi
}

/* ---- a worker ---- */

inline take_ack(upto)
{
    if
    :: upto > node[self].acked -> node[self].acked = upto
    :: else
    fi
}

inline take_rows(a, b, c)
{
    if
    :: node[self].asked == 1 ->
        node[self].asked = 2;
        if
        :: !IS_LOST(self) -> /* nobody sees what a lost node does */
            assert(a >= needed[0] && b >= needed[1] && c >= needed[2]); /* of no deposed primary */
            shown[0] = (a > shown[0] -> a : shown[0]);
            shown[1] = (b > shown[1] -> b : shown[1]);
            shown[2] = (c > shown[2] -> c : shown[2])
        :: else
        fi
    :: else
    fi
}

inline ask()
{
    node[self].asked = 1;
    node[self].get_at = node[self].primary;
    send(node[self].primary, GET, 0, 0, 0)
}

/* A clock goes to every server. */
inline tell_clock()
{
    m = 0;
    do
    :: m < NODES ->
        if
        :: !((node[self].deaf >> m) & 1) -> send(m, CLOCK, node[self].number, 0, 0)
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
}

/* ---- what the scheduler orders ---- */

/* It takes in nothing from lost nodes any more, and goes on without replicas there. */
inline leave()
{
    if
    :: without == DEAF
    :: else ->
        node[self].deaf = node[self].deaf | a2;
        m = 0;
        do
        :: m < NODES ->
            if
            :: (a2 >> m) & 1 ->
                drain(m, self);
                node[self].has[m] = NONE;
                node[self].copying[m] = 0
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0
    fi
}

inline leave_and_settle()
{
    leave();
    if
    :: node[self].serves -> settle() /* what waited for a lost replica */
    :: else
    fi
}

inline close_map()
{
    node[self].closed = 1;
    node[self].settles = 0;
    node[self].fences = 0;
    if
    :: a3 && without != FENCES -> node[self].fences = a1
    :: else -> report!CLOSED(a1, self, (node[self].whole -> node[self].n : NONE))
    fi
}

/* What this node had sent to the primary was handled. */
#define IS_FENCED(x) (!(LINK(x, node[x].primary)??[ADD, _, _, _]))

/* It gives the part up, or what there is of it. */
inline drop_part()
{
    node[self].part = NO_PART;
    node[self].whole = 0;
    node[self].serves = 0;
    node[self].has_last = 0;
    node[self].made = 0;
    m = 0;
    do
    :: m < node[self].n -> node[self].log[m] = 0; m++
    :: else -> break
    od;
    m = 0;
    do
    :: m < NODES ->
        node[self].has[m] = NONE;
        node[self].copying[m] = 0;
        node[self].had[m] = 0;
        node[self].clocked[m] = 0;
        node[self].told[m] = 0;
        m++
    :: else -> break
    od;
    m = 0;
    node[self].n = 0
}

/* The node is the primary from now on, or still. */
inline promote()
{
    node[self].number = a1;
    assert(primary_of[a1] == NONE || primary_of[a1] == self);
    primary_of[a1] = self;
    j = 0;
    do
    :: j < NODES ->
        if
        :: j == 0 -> safe = a2
        :: j == 1 -> safe = a3
        :: else -> safe = a4
        fi;
        if
        :: safe == NONE -> node[self].has[j] = NONE; node[self].copying[j] = 0
        :: safe == ALL && j == self -> /* the part was handed over: nothing waits to be answered here */
            node[self].told[0] = node[self].had[0];
            node[self].told[1] = node[self].had[1];
            node[self].told[2] = node[self].had[2];
            node[self].has[j] = NONE
        :: safe == ALL && j != self -> node[self].has[j] = node[self].n
        :: !node[self].serves && safe != NONE && safe != ALL ->
            node[self].has[j] = safe;
            m = (without == TAIL -> node[self].n : safe);
            do
            :: m < node[self].n -> feed(j, m); m++
            :: else -> break
            od;
            m = 0
        :: else
        fi;
        j++
    :: else -> break
    od;
    j = 0;
    safe = 0;
    node[self].serves = 1;
    node[self].has_last = 0;
    /* nothing that was acknowledged or shown is lost */
    j = 0;
    do
    :: j < NODES ->
        assert(IS_LOST(self) || node[self].had[j] >= node[j].acked);
        assert(IS_LOST(self) || node[self].had[j] >= shown[j]);
        j++
    :: else -> break
    od;
    j = 0;
    report!PROMOTED(a1, self, 0)
}

inline open_map()
{
    node[self].number = a1;
    node[self].closed = 0;
    if
    :: a3 -> /* all that was sent is handled: only answers may be under way */
        node[self].left_at = node[self].primary;
        node[self].left_upto = node[self].sent;
        node[self].primary = a2
    :: !a3 && node[self].primary != a2 ->
        node[self].left_at = NONE;
        node[self].left_upto = 0;
        node[self].primary = a2;
        resent = (without == RESEND -> node[self].sent : node[self].acked);
        do
        :: resent < node[self].sent ->
            resent++;
            send(node[self].primary, ADD, resent, 0, 0)
        :: else -> break
        od;
        resent = 0;
        if
        :: node[self].asked == 1 -> ask()
        :: else
        fi
    :: !a3 && node[self].primary == a2 && node[self].left_at != NONE && IS_DEAF(self, node[self].left_at) &&
       without != LEFT ->
        resent = node[self].acked;
        do
        :: resent < node[self].left_upto ->
            resent++;
            send(node[self].primary, ADD, resent, 0, 0)
        :: else -> break
        od;
        resent = 0;
        if
        :: node[self].asked == 1 && node[self].get_at == node[self].left_at -> ask()
        :: else
        fi;
        node[self].left_at = NONE;
        node[self].left_upto = 0
    :: else
    fi;
    if
    :: node[self].clock -> tell_clock()
    :: else
    fi
}

/* What is asked of the primary: to have its last input, and then to leave the part. */
inline have_last()
{
    node[self].has_last = 1;
    node[self].settles = a1;
    input = LAST;
    put_and_feed()
}

inline give()
{
    assert(node[self].has_last && !node[self].holds[0] && !node[self].holds[1] && !node[self].holds[2]);
    if
    :: without == LEAVES
    :: else -> drop_part()
    fi;
    report!GIVEN(a1, self, 0)
}

inline expect()
{
    node[self].part = EXPECTS;
    node[self].made = a1;
    report!EXPECTED(a1, self, 0)
}

inline make_copy()
{
    node[self].copying[a2] = a1;
    send(a2, IMAGE, a1, node[self].n, 0)
}

/* What comes on one link. */
proctype Receive(byte from; byte self)
{
end:
    do
    :: d_step { LINK(from, self)?kind, a1, a2, a3;
        if
        :: (node[self].deaf >> from) & 1
        :: else ->
            if
            :: kind == ADD && node[self].serves -> take_add(from, a1)
            :: kind == GET && node[self].serves -> take_get(from)
            :: kind == ACK -> take_ack(a1)
            :: kind == ROWS -> take_rows(a1, a2, a3)
            :: kind == FEED -> take_feed(from, a1, a2)
            :: kind == HAS -> take_has(from, a1, a2)
            :: kind == IMAGE -> take_image(from, a1, a2)
            :: kind == WHOLE -> take_whole(from, a1)
            :: kind == HEARD ->
                if
                :: node[self].serves && node[self].copying[from] == a1 ->
                    report!COPIED(node[self].number, self, from)
                :: else
                fi
            :: kind == MOVED ->
                if
                :: node[self].asked == 1 && node[self].get_at == from -> node[self].asked = 3
                :: else
                fi
            :: kind == GET && !node[self].serves && drains ->
                send(from, MOVED, 0, 0, 0)
            :: kind == CLOCK -> take_clock(from, a1)
            :: else -> assert(kind == ADD || kind == GET)
            fi
        fi;
        if
        :: input != NONE -> put_and_feed()
        :: else
        fi;
        if
        :: node[self].serves -> settle()
        :: else
        fi;
        kind = 0;
        a1 = 0;
        a2 = 0;
        a3 = 0
    }
    od
}

proctype Hear(byte self)
{
end:
    do
    :: d_step { news[self]?a2 ->
        leave_and_settle();
        a2 = 0
    }
    od
}

proctype Obey(byte self)
{
end:
    do
    :: d_step { order[self]?kind, a1, a2, a3, a4;
        if
        :: kind == CLOSE ->
            leave_and_settle(); /* again: an earlier PROMOTE may have named the lost node */
            close_map()
        :: kind == PROMOTE -> promote(); settle()
        :: kind == OPEN ->
            open_map();
            if
            :: drains -> report!OPENED(a1, self, 0)
            :: else
            fi
        :: kind == SETTLE -> have_last(); settle()
        :: kind == GIVE -> give()
        :: kind == FORGET ->
            if
            :: without == FORGETS
            :: else -> drop_part()
            fi
        :: kind == EXPECT -> expect()
        :: kind == COPY -> make_copy()
        fi;
        kind = 0;
        a1 = 0;
        a2 = 0;
        a3 = 0;
        a4 = 0
    }
    :: d_step { node[self].fences && IS_FENCED(self) ->
        report!CLOSED(node[self].fences, self, (node[self].whole -> node[self].n : NONE));
        node[self].fences = 0
    }
    od
}

proctype Work(byte self)
{
end:
    do
    :: d_step { MAY_ACT(self) && node[self].sent < adds[self] ->
        node[self].sent++;
        send(node[self].primary, ADD, node[self].sent, 0, 0)
    }
    :: d_step { self == 2 && with_clock && MAY_ACT(self) && node[self].sent == adds[self] &&
                !node[self].clock ->
        node[self].clock = 1;
        tell_clock()
    }
    :: d_step { self == 2 && with_get && MAY_ASK(self) && node[self].asked == 0 ->
        node[self].asked = 1;
        needed[0] = node[0].acked;
        needed[1] = node[1].acked;
        needed[2] = node[2].acked;
        ask()
    }
    :: d_step { MAY_ACT(self) && node[self].asked == 3 -> ask() }
    od
}

/* ---- the scheduler ---- */

/* What the scheduler waits for. */
#define NOTHING 0
#define RECOVERS 1
#define MAKES 2
#define CLOSES 3
#define WAITS_LAST 4
#define PROMOTES 5
#define OPENS 6

inline lose(x)
{
    lost = lost | BIT(x);
    n_lost++;
    number++;
    step = RECOVERS;
    closed = 0;
    done = 0;
    at[x] = NONE;
    k = 0;
    do
    :: k < NODES ->
        if
        :: !IS_LOST(k) ->
            assert(nfull(order[k]) && nfull(news[k]));
            if
            :: with_news -> news[k]!lost
            :: else
            fi;
            order[k]!CLOSE(number, lost, 0, 0)
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

#define BETTER(x) (!IS_LOST(x) && at[x] != NONE && (best == NONE || (at[x] > at[best] && without != LONGEST)))

inline all_closed()
{
    if
    :: without == DEAF || without == ALL_CLOSED
    :: else ->
        gone = lost;
        x = 0;
        do
        :: x < NODES ->
            if
            :: (gone >> x) & 1 ->
                do
                :: len(order[x]) > 0 -> order[x]?kind, b1, b2, b3, a1
                :: else -> break
                od;
                kind = 0;
                a1 = 0;
                drain(0, x); drain(1, x); drain(2, x); drain(x, 0); drain(x, 1); drain(x, 2)
            :: else
            fi;
            x++
        :: else -> break
        od
    fi;
    if
    :: !IS_LOST(primary) -> best = primary /* it stays */
    :: else ->
        if :: BETTER(0) -> best = 0 :: else fi;
        if :: BETTER(1) -> best = 1 :: else fi;
        if :: BETTER(2) -> best = 2 :: else fi
    fi;
    if
    :: best == NONE -> over = 1
    :: else ->
        primary = best;
        k = 0;
        do /* replicas that are not listed */
        :: copies && k < NODES ->
            if
            :: !IS_LOST(k) && at[k] == NONE -> order[k]!FORGET(number, 0, 0, 0)
            :: else
            fi;
            k++
        :: else -> break
        od;
        k = 0;
        order[best]!PROMOTE(number,
                            (best == 0 || IS_LOST(0) -> NONE : at[0]),
                            (best == 1 || IS_LOST(1) -> NONE : at[1]),
                            (best == 2 || IS_LOST(2) -> NONE : at[2]))
    fi;
    best = NONE
}

/* Tells all that live. */
inline tell_all(what, whom, also)
{
    k = 0;
    do
    :: k < NODES ->
        if
        :: !IS_LOST(k) -> assert(nfull(order[k])); order[k]!what, number, whom, also, 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* A live node without the part, which may get a replica. */
#define LACKS(x) (copies && !IS_LOST(x) && at[x] == NONE && !(x == 0 && handed))
#define HAS_OTHERS ((!IS_LOST(1) && at[1] != NONE) || (!IS_LOST(2) && at[2] != NONE))

inline hand_over()
{
    best = (!IS_LOST(1) && at[1] != NONE -> 1 : 2);
    primary = best;
    at[0] = NONE;
    order[0]!GIVE, number, 0, 0, 0;
    order[best]!PROMOTE, number, NONE, (!IS_LOST(1) && at[1] != NONE -> ALL : NONE),
                        (!IS_LOST(2) && at[2] != NONE -> ALL : NONE);
    best = NONE;
    done = 0;
    handed = 1; /* also if a node is lost meanwhile */
    step = PROMOTES
}

proctype Schedule()
{
    byte primary = 0, closed, n_lost, best = NONE;
    byte at[NODES];
    byte step, done;

    d_step {
        at[1] = (replicas < 1 -> NONE : 0);
        at[2] = (replicas < 2 -> NONE : 0)
    }
end:
    do
    :: d_step { n_lost < losses && !over && !IS_LOST(0) -> lose(0) }
    :: d_step { n_lost < losses && !over && !IS_LOST(1) -> lose(1) }
    :: d_step { n_lost < losses && !over && !IS_LOST(2) -> lose(2) }
    :: d_step { drains && step == NOTHING && !over && (LACKS(0) || LACKS(1) || LACKS(2)) ->
        x = (LACKS(0) -> 0 : (LACKS(1) -> 1 : 2));
        order[x]!EXPECT(number, 0, 0, 0);
        step = MAKES;
        x = 0
    }
    :: d_step { drains && step == NOTHING && !over && !(LACKS(0) || LACKS(1) || LACKS(2)) && !handed &&
                primary == 0 && !IS_LOST(0) && HAS_OTHERS ->
        number++;
        closed = 0;
        step = CLOSES;
        tell_all(CLOSE, lost, 1)
    }
    :: d_step { report?kind, y, x, z;
        if
        :: IS_LOST(x)
        :: !IS_LOST(x) && y < number
        :: !IS_LOST(x) && y == number && kind == CLOSED ->
            closed = closed | BIT(x);
            at[x] = z;
            if
            :: (closed | lost) == 7 && step == CLOSES -> order[0]!SETTLE(number, 0, 0, 0); step = WAITS_LAST
            :: step != CLOSES && ((closed | lost) == 7 || (without == ALL_CLOSED && x <= replicas)) ->
                all_closed()
            :: else
            fi
        :: !IS_LOST(x) && y == number && kind == SETTLED -> hand_over()
        :: !IS_LOST(x) && y == number && (kind == PROMOTED || kind == GIVEN) && step == PROMOTES ->
            done++;
            if
            :: done == 2 || (without == ALL_PROMOTED && kind == PROMOTED) ->
                step = OPENS;
                done = 0;
                tell_all(OPEN, primary, 1)
            :: else
            fi
        :: !IS_LOST(x) && y == number && kind == PROMOTED && step != PROMOTES ->
            step = OPENS;
            tell_all(OPEN, primary, 0)
        :: !IS_LOST(x) && y == number && kind == OPENED ->
            done = done | BIT(x);
            if
            :: (done | lost) == 7 -> step = NOTHING; done = 0
            :: else
            fi
        :: !IS_LOST(x) && y == number && kind == EXPECTED -> order[primary]!COPY(number, x, 0, 0)
        :: !IS_LOST(x) && y == number && kind == COPIED -> at[z] = 0; step = NOTHING
        :: else -> assert(kind == GIVEN && without == ALL_PROMOTED)
        fi;
        kind = 0;
        x = 0;
        y = 0;
        z = 0;
        k = 0
    }
    od
}

#define IS_DONE(x) \
    (IS_LOST(x) || (node[x].acked == adds[x] && (node[x].asked == 2 || x != 2 || !with_get) && \
                    (node[x].clock || x != 2 || !with_clock)))

/* Who lives comes to the end of its work. */
proctype Look()
{
    over || (IS_DONE(0) && IS_DONE(1) && IS_DONE(2) && (!drains || handed || IS_LOST(0) || (lost & 6) == 6))
}

init
{
    atomic {
        c_code {
            input = 255;
            replicas = atoi(getenv("REPLICAS"));
            losses = atoi(getenv("LOSSES"));
            adds[0] = atoi(getenv("ADDS_0"));
            adds[1] = atoi(getenv("ADDS_1"));
            adds[2] = atoi(getenv("ADDS_2"));
            with_clock = atoi(getenv("WITH_CLOCK"));
            with_get = atoi(getenv("WITH_GET"));
            without = atoi(getenv("WITHOUT"));
            with_news = atoi(getenv("WITH_NEWS"));
            drains = atoi(getenv("DRAINS"));
            copies = atoi(getenv("COPIES"));
        };
        for (x : 0 .. NODES - 1) {
            node[x].number = 1;
            node[x].left_at = NONE;
            node[x].part = (x <= replicas -> HAS_PART : NO_PART);
            node[x].whole = (x <= replicas);
            node[x].has[0] = NONE;
            node[x].has[1] = NONE;
            node[x].has[2] = NONE
        }
        node[0].serves = 1;
        for (x : 2 .. NUMBERS - 1) {
            primary_of[x] = NONE
        }
        for (x : 1 .. replicas) {
            node[0].has[x] = 0
        }
        x = 0;
        for (x : 0 .. NODES - 1) {
            run Receive(0, x);
            run Receive(1, x);
            run Receive(2, x);
            run Hear(x);
            run Obey(x);
            run Work(x)
        }
        x = 0;
        run Schedule();
        run Look()
    }
}
