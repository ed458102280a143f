/* The cluster file: the meaning of correct files, and each way in which a file can be wrong. */
#include <rubato/error.h>
#include <string.h>

#include "engine/cluster/cluster_file.h"
#include "test_paths.h"
#include "tests/support/runner.h"

#define SCHEDULER "scheduler = { host = \"127.0.0.1\"; port = 4100; };\n"
#define NODES "nodes = ( { id = 0; host = \"127.0.0.1\"; port = 4101; } );\n"

static Cluster *parse(const char *text, GError **error)
{
    return cluster_parse(text, strlen(text), "run.cfg", error);
}

static Cluster *parse_good(const char *text)
{
    GError *error = NULL;
    Cluster *cluster = parse(text, &error);

    ck_assert_msg(cluster != NULL, "%s", error != NULL ? error->message : "no error");
    return cluster;
}

START_TEST(cluster_file_of_the_design_is_read)
{
    g_autoptr(Cluster) cluster = parse_good(
        "cluster: {\n"
        "  name = \"pair\";\n"
        "  scheduler = { host = \"127.0.0.1\"; port = 4100; };\n"
        "  nodes = ( { id = 0; host = \"127.0.0.1\"; port = 4101; servers = 1; workers = 2; },\n"
        "            { id = 1; host = \"127.0.0.2\"; port = 4102; servers = 3; workers = 4; } );\n"
        "  heartbeat_ms = 250;  timeout_ms = 2000; stall_ms = 700;\n"
        "  rendezvous_ms = 900; service_mib = 5;\n"
        "};\n");

    ck_assert_str_eq(cluster->path, "run.cfg");
    ck_assert_str_eq(cluster->name, "pair");
    ck_assert_str_eq(cluster->scheduler_host, "127.0.0.1");
    ck_assert_uint_eq(cluster->scheduler_port, 4100);
    ck_assert_uint_eq(cluster->scheduler_node, 0);
    ck_assert_uint_eq(cluster->n_nodes, 2);
    ck_assert_uint_eq(cluster->nodes[1].id, 1);
    ck_assert_str_eq(cluster->nodes[1].host, "127.0.0.2");
    ck_assert_uint_eq(cluster->nodes[1].port, 4102);
    ck_assert_uint_eq(cluster->nodes[1].servers, 3);
    ck_assert_uint_eq(cluster->nodes[1].workers, 4);
    ck_assert_uint_eq(cluster->nodes[0].line, 4);
    ck_assert_uint_eq(cluster->nodes[1].line, 5);
    ck_assert_uint_eq(cluster->heartbeat_ms, 250);
    ck_assert_uint_eq(cluster->timeout_ms, 2000);
    ck_assert_uint_eq(cluster->stall_ms, 700);
    ck_assert_uint_eq(cluster->rendezvous_ms, 900);
    ck_assert_uint_eq(cluster->service_mib, 5);
}
END_TEST

START_TEST(cluster_file_defaults_hold_for_what_is_left_out)
{
    g_autoptr(Cluster) cluster = parse_good("cluster = { " SCHEDULER NODES " };");

    ck_assert_str_eq(cluster->name, "cluster");
    ck_assert_str_eq(cluster->transport, "auto");
    ck_assert_str_eq(cluster->collectives, "own");
    ck_assert_uint_eq(cluster->nodes[0].servers, 1);
    ck_assert_uint_eq(cluster->nodes[0].workers, 1);
    ck_assert_uint_eq(cluster->heartbeat_ms, 500);
    ck_assert_uint_eq(cluster->timeout_ms, 3000);
    ck_assert_uint_eq(cluster->stall_ms, 10000);
    ck_assert_uint_eq(cluster->rendezvous_ms, 30000);
    ck_assert_uint_eq(cluster->service_mib, 1024);
    ck_assert_str_eq(cluster->placement, "even");
    ck_assert(!cluster->bind_cores && !cluster->numa);
    ck_assert_uint_eq(cluster->nodes[0].limits.memory_mib, 0);
    ck_assert_uint_eq(cluster->nodes[0].limits.network_mib, 0);
    ck_assert_uint_eq(cluster->nodes[0].limits.queries, 0);
}
END_TEST

START_TEST(cluster_file_limits_of_a_node_come_before_those_of_the_cluster)
{
    g_autoptr(Cluster) cluster = parse_good(
        "cluster = { " SCHEDULER "nodes = ( { id = 0; host = \"a\"; port = 0; },\n"
        "  { id = 1; host = \"b\"; port = 0; limits = { memory_mib = 7; queries = 50; }; } );\n"
        "  limits = { memory_mib = 4; network_mib = 3; }; placement = \"balance\"; };");

    ck_assert_str_eq(cluster->placement, "balance");
    ck_assert_uint_eq(cluster->nodes[0].limits.memory_mib, 4);
    ck_assert_uint_eq(cluster->nodes[0].limits.network_mib, 3);
    ck_assert_uint_eq(cluster->nodes[0].limits.queries, 0);
    ck_assert_uint_eq(cluster->nodes[1].limits.memory_mib, 7);
    ck_assert_uint_eq(cluster->nodes[1].limits.network_mib, 3);
    ck_assert_uint_eq(cluster->nodes[1].limits.queries, 50);
}
END_TEST

START_TEST(cluster_file_spare_nodes_do_not_count_at_the_beginning)
{
    g_autoptr(Cluster) cluster = parse_good(
        "cluster = { " SCHEDULER "nodes = ( { id = 0; host = \"a\"; port = 0; workers = 0; },\n"
        "  { id = 1; host = \"b\"; port = 0; servers = 3; spare = true; },\n"
        "  { id = 2; host = \"c\"; port = 0; servers = 0; spare = false; } ); };");

    ck_assert(!cluster->nodes[0].spare && cluster->nodes[1].spare && !cluster->nodes[2].spare);
    ck_assert_uint_eq(cluster_first_nodes(cluster), 2);
    ck_assert_uint_eq(cluster_first_servers(cluster), 1);
    ck_assert_uint_eq(cluster_first_server_nodes(cluster), 1);
}
END_TEST

START_TEST(cluster_file_binds_threads_and_rows)
{
    g_autoptr(Cluster) threads =
        parse_good("cluster = { " SCHEDULER NODES " bind_cores = true; };");
    g_autoptr(Cluster) rows = parse_good("cluster = { " SCHEDULER NODES " numa = true; };");

    ck_assert(threads->bind_cores && !threads->numa);
    ck_assert(rows->numa);
}
END_TEST

START_TEST(cluster_file_plugins_lie_in_its_folder)
{
    static const char text[] =
        "cluster = { " SCHEDULER NODES "plugins = ( \"quorum.so\", \"/lib/other.so\" ); };";
    g_autoptr(Cluster) cluster = cluster_parse(text, strlen(text), "/etc/runs/run.cfg", NULL);

    ck_assert_ptr_nonnull(cluster);
    ck_assert_str_eq(cluster->plugins[0], "/etc/runs/quorum.so");
    ck_assert_str_eq(cluster->plugins[1], "/lib/other.so");
    ck_assert_ptr_null(cluster->plugins[2]);
}
END_TEST

START_TEST(cluster_file_sorts_nodes_by_id_and_finds_them)
{
    g_autoptr(Cluster) cluster = parse_good(
        "cluster = { scheduler = { host = \"h\"; port = 1; node = 40; };\n"
        "nodes = ( { id = 40; host = \"c\"; port = 0; }, { id = 7; host = \"a\"; port = 0; },\n"
        "          { id = 12; host = \"b\"; port = 0; } ); };");
    uint32_t number = 99;

    ck_assert_str_eq(cluster->nodes[0].host, "a");
    ck_assert_str_eq(cluster->nodes[1].host, "b");
    ck_assert_str_eq(cluster->nodes[2].host, "c");
    ck_assert_uint_eq(cluster->scheduler_node, 2);
    ck_assert_ptr_null(cluster_find(cluster, 8, &number));
    ck_assert_uint_eq(number, 99);
    ck_assert_ptr_eq(cluster_find(cluster, 12, &number), &cluster->nodes[1]);
    ck_assert_uint_eq(number, 1);
    ck_assert_ptr_eq(cluster_find(cluster, 7, NULL), &cluster->nodes[0]);
}
END_TEST

START_TEST(cluster_file_scheduler_is_on_the_lowest_id_unless_told)
{
    g_autoptr(Cluster) cluster = parse_good(
        "cluster = { " SCHEDULER "nodes = ( { id = 9; host = \"b\"; port = 5; servers = 0; },\n"
        "  { id = 3; host = \"a\"; port = 5; workers = 0; } ); };");

    ck_assert_uint_eq(cluster->scheduler_node, 0);
    ck_assert_uint_eq(cluster->nodes[0].id, 3);
}
END_TEST

START_TEST(cluster_file_nodes_may_share_port_zero)
{
    g_autoptr(Cluster) cluster = parse_good(
        "cluster = { " SCHEDULER "nodes = ( { id = 0; host = \"localhost\"; port = 0; },\n"
        "  { id = 1; host = \"localhost\"; port = 0; } ); };");

    ck_assert_uint_eq(cluster->nodes[0].port, 0);
    ck_assert_uint_eq(cluster->nodes[1].port, 0);
}
END_TEST

START_TEST(cluster_file_scheduler_alone_on_a_node_is_allowed)
{
    g_autoptr(Cluster) cluster =
        parse_good("cluster = { " SCHEDULER
                   "nodes = ( { id = 0; host = \"a\"; port = 0; servers = 0; workers = 0; },\n"
                   "  { id = 1; host = \"a\"; port = 0; } ); };");

    ck_assert_uint_eq(cluster->nodes[0].workers, 0);
}
END_TEST

/* Texts of different form that mean the same. */
static const char *const WRITINGS[] = {
    "cluster:{scheduler:{host:\"127.0.0.1\" port:4100} nodes:({id:0 host:\"127.0.0.1\" "
    "port:4101})}",
    "cluster = { " SCHEDULER NODES " }; # the end",
    "cluster = { " SCHEDULER NODES " }; // the end",
    "/* from here\n ** to { there */\r\n#\r\ncluster\r\n=\r\n{ " SCHEDULER "\f\t" NODES " }",
    "cluster = { " SCHEDULER "nodes = ( { id = 0, host = \"127.\" /* one */ \"0.0.1\", "
    "port = +4101, servers = 1 } ) }",
};

START_TEST(cluster_file_syntax_has_these_writings)
{
    g_autoptr(Cluster) cluster = parse_good(WRITINGS[_i]);

    ck_assert_str_eq(cluster->scheduler_host, "127.0.0.1");
    ck_assert_uint_eq(cluster->n_nodes, 1);
    ck_assert_str_eq(cluster->nodes[0].host, "127.0.0.1");
    ck_assert_uint_eq(cluster->nodes[0].port, 4101);
}
END_TEST

START_TEST(cluster_file_digest_is_of_the_bytes)
{
    const char *text = "cluster = { " SCHEDULER NODES " };\n";
    g_autoptr(Cluster) a = parse_good(text);
    g_autoptr(Cluster) b = parse_good("cluster = { " SCHEDULER NODES " }; \n");
    g_autofree char *expected = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);

    ck_assert_str_eq(a->digest, expected);
    ck_assert_str_ne(a->digest, b->digest);
}
END_TEST

typedef struct {
    const char *text;
    unsigned line;
    const char *says;   /* what was wrong */
    const char *remedy; /* what to write instead; NULL: said already */
} Fault;

#define NODE(body) "cluster = {\n" SCHEDULER "nodes = (\n{ " body " }\n); };"
#define TIMES(body) "cluster = {\n" SCHEDULER NODES body "\n};"
#define SCHED(body) "cluster = {\n" NODES "scheduler = { " body " };\n};"

static const Fault FAULTS[] = {
    /* What is there twice. */
    { "cluster = {\n" SCHEDULER "nodes = (\n{ id = 3; host = \"a\"; port = 1; },\n"
      "{ id = 4; host = \"a\"; port = 2; },\n{ id = 3; host = \"a\"; port = 3; } ); };",
      6, "id 3 is given to two nodes, also on line 4", "give each node its own" },
    { "cluster = {\n" SCHEDULER "nodes = (\n{ id = 3; host = \"a\"; port = 1; },\n"
      "{ id = 2; host = \"A\"; port = 1; } ); };",
      5, "a:1 is used twice, also on line 4", "a port of its own" },
    { "cluster = {\n" SCHEDULER "nodes = (\n{ id = 3; host = \"localhost\"; port = 1; },\n"
      "{ id = 2; host = \"127.0.0.1\"; port = 1; } ); };",
      5, "used twice", NULL },
    { NODE("id = 0; host = \"127.0.0.1\"; port = 4100;"), 4, "127.0.0.1:4100 is used twice",
      "also on line 2" },
    { "cluster = {\n" SCHEDULER NODES "nodes = ();\n};", 4,
      "'nodes' is here twice, first on line 3", "leave one of them out" },
    { "cluster = { };\ncluster = { };", 2, "'cluster' is here twice", NULL },

    /* Keys that are missing. */
    { "", 1, "the file has no 'cluster'", "cluster: {" },
    { "# nothing\n", 1, "the file has no 'cluster'", NULL },
    { "cluster = {\n" SCHEDULER "};", 1, "the cluster has no 'nodes'", "nodes = ( { id = 0;" },
    { "cluster = {\n" NODES "};", 1, "the cluster has no 'scheduler'", "scheduler = { host =" },
    { SCHED("port = 4100;"), 3, "'scheduler' has no 'host'", "host = \"127.0.0.1\";" },
    { SCHED("host = \"a\";"), 3, "'scheduler' has no 'port'", "port = 4100;" },
    { NODE("host = \"a\"; port = 1;"), 4, "entry 1 of 'nodes' has no 'id'", "id = 0;" },
    { NODE("id = 5; port = 1;"), 4, "node 5 has no 'host'", "host = " },
    { NODE("id = 5; host = \"a\";"), 4, "node 5 has no 'port'", "port = 4101;" },

    /* Keys that are unknown. */
    { NODE("id = 0; host = \"a\"; port = 1;\nwokers = 2;"), 5, "unknown key 'wokers'",
      "did you mean 'workers'?" },
    { NODE("ID = 0; host = \"a\"; port = 1;"), 4, "unknown key 'ID'", "did you mean 'id'?" },
    { NODE("id = 0; host = \"a\"; port = 1; gpu = 2;"), 4, "unknown key 'gpu'",
      "known here: id, host, port, servers, workers" },
    { TIMES("heartbeat = 4;"), 4, "unknown key 'heartbeat'", "did you mean 'heartbeat_ms'?" },
    { TIMES("time_out_ms = 4;"), 4, "unknown key 'time_out_ms'", "did you mean 'timeout_ms'?" },
    { SCHED("host = \"a\"; prot = 3;"), 3, "unknown key 'prot' in 'scheduler'",
      "did you mean 'port'?" },
    { "name = \"x\";\ncluster = { };", 1, "unknown key 'name' in the file", "known here: cluster" },
    { "clutser = { };", 1, "unknown key 'clutser'", "did you mean 'cluster'?" },

    /* Types. */
    { NODE("id = 0; host = \"a\"; port = \"x\";"), 4, "'port' of node 0 is a text",
      "a whole number without quotes, as in port = 4101;" },
    { NODE("id = 0; host = \"a\"; port = 1.5;"), 4, "'port' of node 0 is a number with a fraction",
      NULL },
    { NODE("id = true; host = \"a\"; port = 1;"), 4, "'id' of entry 1 of 'nodes' is a truth value",
      NULL },
    { NODE("id = 0; host = 7; port = 1;"), 4, "'host' of node 0 is a whole number",
      "a text in quotes" },
    { NODE("id = 0; host = \"a\"; port = { };"), 4, "'port' of node 0 is a group", NULL },
    { NODE("id = 0; host = \"a\"; port = ( );"), 4, "'port' of node 0 is a list", NULL },
    { "cluster = 1;", 1, "'cluster' is a whole number", "write a group" },
    { "cluster = {\n" NODES "scheduler = \"a:1\";\n};", 3, "'scheduler' is a text",
      "write a group" },
    { "cluster = {\n" SCHEDULER "nodes = { };\n};", 3, "'nodes' is a group", "a list in ( )" },
    { "cluster = {\n" SCHEDULER "nodes = (\n1 );\n};", 4, "entry 1 of 'nodes' is a whole number",
      "{ id = 0;" },
    { TIMES("name = 3;"), 4, "'name' of the cluster is a whole number", "name = \"pair\";" },
    { TIMES("timeout_ms = \"3000\";"), 4, "'timeout_ms' of the cluster is a text", NULL },

    /* Ranges. */
    { NODE("id = 0; host = \"a\"; port = 65536;"), 4, "'port' of node 0 is 65536",
      "from 0 to 65535" },
    { NODE("id = 0; host = \"a\"; port = -1;"), 4, "'port' of node 0 is -1", "from 0 to 65535" },
    { NODE("id = -4; host = \"a\"; port = 1;"), 4, "'id' of entry 1 of 'nodes' is -4",
      "from 0 to 1000000" },
    { NODE("id = 4294967297; host = \"a\"; port = 1;"), 4, "the number 4294967297 is too large",
      NULL },
    { NODE("id = 0; host = \"a\"; port = 1; servers = -1;"), 4, "'servers' of node 0 is -1",
      "from 0 to 1024" },
    { NODE("id = 0; host = \"a\"; port = 1;\nworkers = 1000000;"), 5,
      "'workers' of node 0 is 1000000", "from 0 to 1024" },
    { SCHED("host = \"a\"; port = 0;"), 3, "'port' of 'scheduler' is 0", "from 1 to 65535" },
    { TIMES("heartbeat_ms = 0;"), 4, "'heartbeat_ms' of the cluster is 0", "from 1" },
    { TIMES("rendezvous_ms = 0;"), 4, "'rendezvous_ms' of the cluster is 0", NULL },
    { TIMES("placement = \"fair\";"), 4, "unknown placement \"fair\"", "known: even, balance" },
    { TIMES("bind_cores = 1;"), 4, "'bind_cores' of the cluster is a whole number", "true" },
    { TIMES("numa = \"yes\";"), 4, "'numa' of the cluster is a text", "true" },
    { TIMES("limits = 7;"), 4, "'limits' is a whole number", "limits = { memory_mib = 4096; };" },
    { TIMES("limits = { memory_mib = 0; };"), 4, "'memory_mib' of the limits of the cluster is 0",
      "from 1 to 1048576" },
    { NODE("id = 5; host = \"a\"; port = 1; limits = { memory = 1; };"), 4,
      "unknown key 'memory' in the limits of node 5", "memory_mib" },
    { TIMES("plugins = \"quorum.so\";"), 4, "'plugins' is a text", "plugins = ( \"quorum.so\" );" },
    { TIMES("plugins = ( \"a.so\",\n 3 );"), 5, "entry 2 of 'plugins' is a whole number",
      "the name of a file" },
    { TIMES("plugins = ( \"\" );"), 4, "entry 1 of 'plugins' is empty", NULL },
    { TIMES("service_mib = 0;"), 4, "'service_mib' of the cluster is 0", "from 1 to 1048576" },
    { TIMES("stall_ms = -5;"), 4, "'stall_ms' of the cluster is -5", NULL },
    { TIMES("timeout_ms = 999999999;"), 4, "is 999999999", "to 86400000" },
    { TIMES("timeout_ms = 99999999999;"), 4, "the number 99999999999 is too large", NULL },

    /* What does not fit together. */
    { TIMES("heartbeat_ms = 500;\ntimeout_ms = 500;"), 5,
      "timeout_ms (500) is not above heartbeat_ms (500)", "timeout_ms = 3000;" },
    { TIMES("heartbeat_ms = 4000;"), 4, "timeout_ms (3000) is not above heartbeat_ms (4000)",
      "timeout_ms = 24000;" },
    { NODE("id = 0; host = \"a\"; port = 1; servers = 0;"), 3, "no node has a server",
      "servers = 1;" },
    { "cluster = {\n" SCHEDULER "nodes = ( { id = 0; host = \"a\"; port = 1; },\n"
      "{ id = 1; host = \"a\"; port = 2; servers = 0; workers = 0; } ); };",
      4, "node 1 has no servers and no workers", "leave the node out" },
    { "cluster = {\n" SCHEDULER "nodes = ( { id = 0; host = \"a\"; port = 1; servers = 0; },\n"
      "{ id = 1; host = \"a\"; port = 2; spare = true; } ); };",
      3, "no node has a server", "that is not spare" },
    { NODE("id = 0; host = \"a\"; port = 1; spare = true;"), 4,
      "the scheduler runs on node 0, which is spare", "name another node in 'scheduler'" },
    { "cluster = {\n" SCHEDULER "nodes = ( { id = 0; host = \"a\"; port = 1; },\n"
      "{ id = 1; host = \"a\"; port = 2; spare = true; } );\ncollectives = \"mpi\"; };",
      5, "and some are spare", "leave 'spare' out" },
    { SCHED("host = \"a\"; port = 1;\nnode = 6;"), 4, "'node' of 'scheduler' is 6",
      "leave it out for the lowest (0)" },
    { "cluster = {\n" SCHEDULER "nodes = (\n);\n};", 3, "'nodes' is empty", "write at least one" },

    /* Hosts and names. */
    { NODE("id = 0; host = \"\"; port = 1;"), 4, "'host' of node 0 is empty", "127.0.0.1" },
    { SCHED("host = \"\"; port = 1;"), 3, "'host' of 'scheduler' is empty", NULL },
    { NODE("id = 0; host = \"0.0.0.0\"; port = 1;"), 4, "no address that others can reach", NULL },
    { NODE("id = 0; host = \"*\"; port = 1;"), 4, "no address that others can reach", NULL },
    { NODE("id = 0; host = \"-oProxyCommand=x\"; port = 1;"), 4, "'host' of node 0 is \"-oProxy",
      "a host name or an address alone" },
    { NODE("id = 0; host = \"tcp://a\"; port = 1;"), 4, "'host' of node 0 is \"tcp://a\"", NULL },
    { NODE("id = 0; host = \"a b\"; port = 1;"), 4, "'host' of node 0 is \"a b\"", NULL },
    { TIMES("transport = \"carrier pigeon\";"), 4, "unknown transport \"carrier pigeon\"",
      "known: auto, shm, ipc, tcp, ucx, shm+ucx, zmq" },
    { TIMES("collectives = \"pigeons\";"), 4, "unknown backend of collectives \"pigeons\"",
      "known: own, mpi" },
    /* docs/security.md: Over MPI */
    { TIMES("encrypt = true; collectives = \"mpi\";"), 4, "neither encrypts nor authenticates",
      "leave encrypt out" },
    { TIMES("authenticate = true; collectives = \"mpi\";"), 4, "neither encrypts nor authenticates",
      "leave authenticate out" },
    { TIMES("name = \"\";"), 4, "'name' of the cluster is empty", NULL },
    { TIMES("name = \"a\\nb\";"), 4, "'name' of the cluster is no short text", "on one line" },

    /* Syntax. */
    { "cluster = {\n" SCHEDULER "nodes = ( { id = 0 host } );\n};", 3, "'}' after 'host'",
      "host = value;" },
    { "cluster = {\n\n" SCHEDULER, 1, "the group that begins here never ends", "'}'" },
    { "cluster = {\nnodes = ( { id = 0; }\n", 2, "the list that begins here never ends", "')'" },
    { "cluster = {\nnodes = ( { id = 0; } { id = 1; } ); };", 2, "'{' in a list", "','" },
    { "cluster = {\nnodes = ( { id = 0; }, ); };", 2, "a comma before ')'", NULL },
    { "cluster = {\nnodes = [ 1, 2 ]; };", 2, "an array in [ ] after 'nodes'", "a list in ( )" },
    { "cluster = {\nname = \"pair;\n};", 2, "does not end on its line", "close it" },
    { "cluster = {\nname = pair;\n};", 2, "the text pair has no quotes", "write \"pair\"" },
    { "cluster = {\nname = ;\n};", 2, "';' where the value of 'name' should be", NULL },
    { "cluster = {\nname", 2, "the end of the file after 'name'", "name = value;" },
    { "cluster = {\nname =", 2, "the end of the file where the value of 'name' should be", NULL },
    { "cluster = {\n= 4; };", 2, "'=' where a key should be", "key = value;" },
    { "cluster = { };\n};", 2, "'}' where a key should be", NULL },
    { "cluster = {\n\"name\" = 3; };", 2, "a string where a key should be", NULL },
    { "cluster = {\ntrue = 3; };", 2, "'true' is a value and cannot be a key", NULL },
    { "cluster = {\nport = 010; };", 2, "begins with a zero", "decimal" },
    { "cluster = {\nport = 0x10; };", 2, "begins with a zero", "decimal" },
    { "cluster = {\nport = 10L; };", 2, "without the L", NULL },
    { "cluster = {\nport = 10k; };", 2, "'10k' is no number", NULL },
    { "cluster = {\nport = 1.; };", 2, "'1.' is no number", NULL },
    { "cluster = {\nport = -; };", 2, "'-' is no value", NULL },
    { "cluster = {\nport = 1e; };", 2, "'1e' is no number", NULL },
    { "cluster = {\nport = 1234567890123456789; };", 2, "too large", NULL },
    { "cluster = {\n/* { };\n", 2, "the comment that begins here with /* never ends", "*/" },
    { "\n@include \"other.cfg\"\n", 2, "@include in a cluster file", "write its text here" },
    { "a={b={c={d={e={f={g={h={i={j=1}}}}}}}}}}", 1, "deeper than 8", NULL },
    { "cluster = {\n\xff };", 2, "a byte that is no text (0xff)", "UTF-8" },
    { "cluster = {\n\x01 };", 2, "a control character (0x01)", NULL },
    { "cluster = {\nn\xc3\xa4me = 1; };", 2, "'\xc3\xa4' after 'n'", NULL },
};

START_TEST(cluster_file_fault_is_refused_with_its_line)
{
    const Fault *fault = &FAULTS[_i];
    g_autoptr(GError) error = NULL;
    g_autoptr(Cluster) cluster = parse(fault->text, &error);
    g_autofree char *place = g_strdup_printf("run.cfg:%u: ", fault->line);

    ck_assert_msg(cluster == NULL, "accepted: %s", fault->text);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG));
    ck_assert_msg(g_str_has_prefix(error->message, place), "%s, expected at line %u",
                  error->message, fault->line);
    ck_assert_msg(strstr(error->message, fault->says) != NULL, "\"%s\" lacks \"%s\"",
                  error->message, fault->says);
    ck_assert_msg(fault->remedy == NULL || strstr(error->message, fault->remedy) != NULL,
                  "\"%s\" lacks \"%s\"", error->message, fault->remedy);
}
END_TEST

START_TEST(cluster_file_with_a_zero_byte_is_refused)
{
    static const char text[] = "cluster = { " SCHEDULER NODES " };\0";
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(cluster_parse(text, sizeof text - 1, "run.cfg", &error));
    ck_assert_msg(strstr(error->message, "no text (0x00)") != NULL, "%s", error->message);
}
END_TEST

START_TEST(cluster_file_with_too_many_nodes_is_refused)
{
    g_autoptr(GString) text = g_string_new("cluster = {\n" SCHEDULER "nodes = (\n");
    g_autoptr(GError) error = NULL;

    for (unsigned i = 0; i <= CLUSTER_MAX_NODES; i++)
        g_string_append_printf(text, "%s{ id = %u; host = \"a\"; port = 0; }", i > 0 ? "," : "", i);
    g_string_append(text, "); };");
    ck_assert_ptr_null(parse(text->str, &error));
    ck_assert_msg(strstr(error->message, "run.cfg:3: 'nodes' has 4097 entries") != NULL, "%s",
                  error->message);
}
END_TEST

START_TEST(cluster_file_with_too_many_keys_is_refused)
{
    g_autoptr(GString) text = g_string_new("");
    g_autoptr(GError) error = NULL;

    for (unsigned i = 0; i < 40; i++)
        g_string_append_printf(text, "k%u = 1;\n", i);
    ck_assert_ptr_null(parse(text->str, &error));
    ck_assert_msg(strstr(error->message, "run.cfg:33: more than 32 keys") != NULL, "%s",
                  error->message);
}
END_TEST

START_TEST(cluster_file_with_an_endless_key_is_refused)
{
    g_autofree char *key = g_strnfill(500, 'k');
    g_autofree char *text = g_strdup_printf("%s = 1;", key);
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(parse(text, &error));
    ck_assert_msg(strstr(error->message, "a key of 500 letters") != NULL, "%s", error->message);
}
END_TEST

START_TEST(cluster_file_that_is_huge_is_refused)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(cluster_read("/dev/zero", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG));
    ck_assert_msg(strstr(error->message, "/dev/zero:1: the file is larger than") != NULL, "%s",
                  error->message);
}
END_TEST

START_TEST(cluster_file_that_is_missing_is_named)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(cluster_read("/nowhere/run.cfg", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(strstr(error->message, "/nowhere/run.cfg") != NULL, "%s", error->message);
}
END_TEST

START_TEST(cluster_file_that_is_a_folder_is_named)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(cluster_read("/", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(strstr(error->message, "directory") != NULL, "%s", error->message);
}
END_TEST

START_TEST(cluster_free_takes_null)
{
    cluster_free(NULL);
}
END_TEST

static const char *const EXAMPLES[] = { "config/pair.cfg", "config/trio.cfg" };

START_TEST(cluster_file_examples_are_read)
{
    g_autofree char *path = g_build_filename(TEST_SOURCE_DIR, EXAMPLES[_i], NULL);
    GError *error = NULL;
    g_autoptr(Cluster) cluster = cluster_read(path, &error);

    ck_assert_msg(cluster != NULL, "%s", error != NULL ? error->message : "no error");
    ck_assert_str_eq(cluster->path, path);
    ck_assert_uint_eq(cluster->n_nodes, (unsigned)_i + 2);
    ck_assert_uint_eq(cluster->scheduler_node, (unsigned)_i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_file");
    TCase *meaning = tcase_create("meaning");
    TCase *faults = tcase_create("faults");

    tcase_add_test(meaning, cluster_file_of_the_design_is_read);
    tcase_add_test(meaning, cluster_file_defaults_hold_for_what_is_left_out);
    tcase_add_test(meaning, cluster_file_spare_nodes_do_not_count_at_the_beginning);
    tcase_add_test(meaning, cluster_file_binds_threads_and_rows);
    tcase_add_test(meaning, cluster_file_plugins_lie_in_its_folder);
    tcase_add_test(meaning, cluster_file_limits_of_a_node_come_before_those_of_the_cluster);
    tcase_add_test(meaning, cluster_file_sorts_nodes_by_id_and_finds_them);
    tcase_add_test(meaning, cluster_file_scheduler_is_on_the_lowest_id_unless_told);
    tcase_add_test(meaning, cluster_file_nodes_may_share_port_zero);
    tcase_add_test(meaning, cluster_file_scheduler_alone_on_a_node_is_allowed);
    tcase_add_loop_test(meaning, cluster_file_syntax_has_these_writings, 0, G_N_ELEMENTS(WRITINGS));
    tcase_add_test(meaning, cluster_file_digest_is_of_the_bytes);
    tcase_add_loop_test(meaning, cluster_file_examples_are_read, 0, G_N_ELEMENTS(EXAMPLES));
    tcase_add_test(meaning, cluster_free_takes_null);
    suite_add_tcase(suite, meaning);

    tcase_add_loop_test(faults, cluster_file_fault_is_refused_with_its_line, 0,
                        G_N_ELEMENTS(FAULTS));
    tcase_add_test(faults, cluster_file_with_a_zero_byte_is_refused);
    tcase_add_test(faults, cluster_file_with_too_many_nodes_is_refused);
    tcase_add_test(faults, cluster_file_with_too_many_keys_is_refused);
    tcase_add_test(faults, cluster_file_with_an_endless_key_is_refused);
    tcase_add_test(faults, cluster_file_that_is_huge_is_refused);
    tcase_add_test(faults, cluster_file_that_is_missing_is_named);
    tcase_add_test(faults, cluster_file_that_is_a_folder_is_named);
    suite_add_tcase(suite, faults);
    return run_suite(suite);
}
