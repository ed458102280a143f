/* How a snapshot is paced: beside training it pauses, for a bounded time, as long as copies leave
 * half of their memory free and are few, and while the disk takes its files; otherwise it does not.
 * Time stands still but for what the cases say. */
#include <check.h>
#include <stdatomic.h>

#include "engine/engine_private.h"
#include "engine/snapshot/write_pace.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

#define MS ((int64_t)1000 * 1000)

enum { BLOCK_BYTES = 1000, WIDTH = 16, N_KEYS = 1 << 15 };

/* ---- the pace alone ---- */

typedef struct {
    int64_t processor_ns, now_ns;
    int64_t paused_ns, longest_ns;
    unsigned n_pauses;
    SpillFile *spill;
    unsigned fills_at; /* in that pause copies take half of their memory and more; 0: in none */
    void *blocks[3];   /* which it is filled with */
    unsigned n_blocks;
} Clock;

static int64_t tell_processor(void *data)
{
    return ((const Clock *)data)->processor_ns;
}

static int64_t tell_now(void *data)
{
    return ((const Clock *)data)->now_ns;
}

static void note_pause(int64_t ns, void *data)
{
    Clock *const clock = data;

    clock->paused_ns += ns;
    clock->longest_ns = MAX(clock->longest_ns, ns);
    clock->now_ns += ns;
    if (++clock->n_pauses == clock->fills_at)
        for (; clock->n_blocks < G_N_ELEMENTS(clock->blocks); clock->n_blocks++)
            ck_assert(spill_file_take(clock->spill, BLOCK_BYTES, &clock->blocks[clock->n_blocks]));
}

static Clock clock_of_case;
static const WritePaceOps ops = { tell_processor, tell_now, note_pause, &clock_of_case };
static WritePace pace;

static void set_up(void)
{
    clock_of_case = (Clock){ .spill = spill_file_new(g_get_tmp_dir(), 4 * BLOCK_BYTES) };
    write_pace_start(&pace, &ops, clock_of_case.spill, /* before_ns= */ 0);
    write_pace_begin_part(&pace);
}

static void tear_down(void)
{
    while (clock_of_case.n_blocks > 0)
        spill_file_give_back(clock_of_case.spill, clock_of_case.blocks[--clock_of_case.n_blocks],
                             BLOCK_BYTES);
    spill_file_free(clock_of_case.spill);
}

/* How long it pauses after a slice that took so long. */
static int64_t follow(int64_t processor_ns, uint64_t n_changes)
{
    const int64_t before_ns = clock_of_case.paused_ns;

    clock_of_case.processor_ns += processor_ns;
    write_pace_follow_slice(&pace, n_changes);
    return clock_of_case.paused_ns - before_ns;
}

START_TEST(pauses_are_in_proportion_and_bounded)
{
    ck_assert_int_eq(follow(MS, 1), WRITE_PACE_TIMES * MS);
    ck_assert_int_eq(follow(MS / 4, 2), WRITE_PACE_TIMES * MS / 4);
    ck_assert_int_eq(follow(1000 * MS, 3), WRITE_PACE_MOST_NS);
    ck_assert_int_le(clock_of_case.longest_ns, WRITE_PACE_STEP_NS);
}
END_TEST

/* Training may compute for long between two changes; when it has ended, the rest goes at full
 * speed. */
START_TEST(no_pause_where_nothing_changes)
{
    ck_assert_int_eq(follow(MS, 0), 0);
    ck_assert(!pace.has_paused);
    ck_assert_int_eq(follow(MS, 1), WRITE_PACE_TIMES * MS);
    ck_assert(pace.has_paused);
    clock_of_case.now_ns += WRITE_PACE_RECENT_NS / 2;
    ck_assert_int_eq(follow(MS, 1), WRITE_PACE_TIMES * MS);
    clock_of_case.now_ns += WRITE_PACE_RECENT_NS / 2;
    ck_assert_int_eq(follow(MS, 1), 0);
    ck_assert(!pace.has_paused);
    write_pace_begin_part(&pace);
    ck_assert_int_eq(follow(MS, 0), 0);
    ck_assert_int_eq(follow(MS, 1), WRITE_PACE_TIMES * MS);
}
END_TEST

START_TEST(pause_ends_when_copies_take_half_of_their_memory)
{
    clock_of_case.fills_at = 2;
    ck_assert_int_eq(follow(MS, 1), 2 * WRITE_PACE_STEP_NS);
    ck_assert_int_eq(follow(MS, 2), 0);
}
END_TEST

/* So many bytes of copies are made in the time of a step. */
static void copy(uint64_t n_bytes)
{
    void *block;

    for (uint64_t done = 0; done < n_bytes; done += BLOCK_BYTES) {
        ck_assert(spill_file_take(clock_of_case.spill, BLOCK_BYTES, &block));
        spill_file_give_back(clock_of_case.spill, block, BLOCK_BYTES);
    }
    clock_of_case.now_ns += WRITE_PACE_STEP_NS;
}

/* A pause of 9 ms would be one in which 4.5 times as much is copied as in a step. Copies that were
 * made before a look count no more at the next one. */
START_TEST(no_pause_where_rows_change_faster_than_it_spares)
{
    const uint64_t n_enough = 2 * WRITE_PACE_SLICE_BYTES / WRITE_PACE_TIMES;

    copy(n_enough - 2 * BLOCK_BYTES);
    ck_assert_int_eq(follow(MS, 1), WRITE_PACE_TIMES * MS);
    write_pace_start(&pace, &ops, clock_of_case.spill, /* before_ns= */ 0);
    copy(n_enough + 2 * BLOCK_BYTES);
    ck_assert_int_eq(follow(MS, 2), 0);
    ck_assert_int_eq(follow(MS, 3), 0); /* nothing new is known */
    copy(0);
    ck_assert_int_eq(follow(MS, 4), WRITE_PACE_TIMES * MS);
}
END_TEST

/* One of each 100 ms, which takes 40 ms without pauses: these become a third of what is left. If it
 * takes all of the time, there are none. */
START_TEST(pauses_leave_time_before_the_next_snapshot)
{
    static const struct {
        unsigned n_slices; /* each takes 4 ms of a processor, and of time */
        int64_t paused_ms;
    } cases[] = { { 10, 20 }, { 25, 0 } };
    int64_t before_ns = 0, due_ns = 0;

    for (unsigned i = 0; i < 20; i++) {
        const int64_t was_ns = clock_of_case.paused_ns;

        clock_of_case.now_ns = MAX(due_ns, clock_of_case.now_ns);
        due_ns = clock_of_case.now_ns + 100 * MS;
        write_pace_start(&pace, &ops, clock_of_case.spill, before_ns);
        for (unsigned slice = 0; slice < cases[_i].n_slices; slice++) {
            clock_of_case.now_ns += 4 * MS;
            (void)follow(4 * MS, 1000 * i + slice + 1);
        }
        before_ns = clock_of_case.now_ns;
        if (i == 19)
            ck_assert_int_le(ABS(clock_of_case.paused_ns - was_ns - cases[_i].paused_ms * MS), MS);
        if (i > 0)
            ck_assert_int_le(clock_of_case.now_ns, due_ns);
    }
}
END_TEST

START_TEST(snapshot_that_others_wait_for_does_not_pause)
{
    write_pace_start(&pace, &ops, NULL, /* before_ns= */ 0);
    ck_assert_int_eq(follow(MS, 1), 0);
    write_pace_begin_file(&pace);
    ck_assert(!write_pace_follow_piece(&pace, 2));
}
END_TEST

/* A piece of a file, which the disk takes so long for, and what follows it: how long it pauses; -1:
 * it leaves the rest of the file to the disk. */
static int64_t follow_piece(int64_t disk_ns, uint64_t n_changes)
{
    const int64_t before_ns = clock_of_case.paused_ns;

    clock_of_case.now_ns += disk_ns;
    return write_pace_follow_piece(&pace, n_changes) ? clock_of_case.paused_ns - before_ns : -1;
}

START_TEST(pauses_leave_the_disk_to_others)
{
    int64_t paused_ns = 0, some_ns;

    write_pace_begin_file(&pace);
    ck_assert_int_eq(follow_piece(0, 1), 0);
    ck_assert_int_eq(follow_piece(8 * MS, 2), WRITE_PACE_DISK_TIMES * 8 * MS);
    write_pace_begin_file(&pace); /* what was between two files took no disk */
    ck_assert_int_eq(follow_piece(50 * MS, 3), 0);
    for (unsigned i = 4; (some_ns = follow_piece(10 * MS, i)) >= 0; i++)
        paused_ns += some_ns;
    ck_assert_int_eq(paused_ns, WRITE_PACE_DISK_MOST_NS - WRITE_PACE_DISK_TIMES * 8 * MS);
}
END_TEST

START_TEST(no_pause_of_the_disk_where_nothing_changes)
{
    write_pace_begin_file(&pace);
    ck_assert_int_eq(follow_piece(0, 0), -1);
    ck_assert_int_eq(follow_piece(0, 1), 0);
    ck_assert_int_eq(follow_piece(WRITE_PACE_RECENT_NS, 1), -1);
}
END_TEST

/* ---- in a snapshot ---- */

typedef struct {
    _Atomic bool trains;      /* a worker adds, until this is false */
    _Atomic uint64_t n_added; /* its Adds */
    uint64_t n_seen;
    int64_t processor_ns, now_ns;
    unsigned n_pauses;
} Training;

/* Called before the first slice and after each. So the worker adds while a slice is written,
 * which ends, for it adds until the snapshot has ended. */
static int64_t wait_for_adds(void *data)
{
    Training *const training = data;

    while (atomic_load(&training->trains) && atomic_load(&training->n_added) < training->n_seen + 2)
        g_thread_yield();
    training->n_seen = atomic_load(&training->n_added);
    return training->processor_ns += MS;
}

static int64_t tell_time(void *data)
{
    return ((const Training *)data)->now_ns;
}

static void count_pause(int64_t ns, void *data)
{
    (void)ns;
    ((Training *)data)->n_pauses++;
}

static bool add_always(RubatoWorker *worker, void *user_data, GError **error)
{
    Training *const training = user_data;
    const RubatoKey key = 7;
    const float row[WIDTH] = { 1 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    if (table == NULL)
        return false;
    while (atomic_load(&training->trains)) {
        if (!rubato_kv_table_add(table, &key, 1, row, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
        atomic_fetch_add(&training->n_added, 1);
    }
    return true;
}

START_TEST(snapshot_pauses_beside_training_alone)
{
    static const char *const tables[] = { "t", NULL };
    Training training = { .now_ns = MS };
    const WritePaceOps counted = { wait_for_adds, tell_time, count_pause, &training };
    const RubatoTask task = { .name = "add",
                              .run = add_always,
                              .user_data = &training,
                              .tables = tables,
                              .workers_per_node = 1 };
    g_autofree char *directory = g_dir_make_tmp("rubato-pace-XXXXXX", NULL);
    const RubatoSnapshotSpec spec = { .directory = directory };
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = engine_new_of(&(RubatoEngineConfig){ .servers = 1 },
                                                   &(EngineParts){ .pace = &counted }, &error);
    RubatoTaskRun *run;

    ck_assert_ptr_nonnull(engine);
    create_table(engine, &(RubatoTableSpec){
                             .name = "t", .width = WIDTH, .n_keys = N_KEYS, .model = "asp" });
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
    ck_assert_uint_eq(training.n_pauses, 0);
    atomic_store(&training.trains, true);
    run = rubato_engine_start(engine, &task, &error);
    ck_assert_ptr_nonnull(run);
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
    ck_assert_uint_eq(training.n_pauses, 0); /* the one before was written just now */
    training.now_ns += 60000 * MS;
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
    atomic_store(&training.trains, false);
    ck_assert(rubato_task_run_wait(run, NULL));
    /* 8 slices of 256 KB, and each pause has some steps. */
    ck_assert_uint_ge(training.n_pauses, 8);
    remove_tree(directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("the pace of snapshots");
    TCase *alone = tcase_create("pace");
    TCase *cases = tcase_create("snapshots");

    tcase_add_checked_fixture(alone, set_up, tear_down);
    tcase_add_test(alone, pauses_are_in_proportion_and_bounded);
    tcase_add_test(alone, no_pause_where_nothing_changes);
    tcase_add_test(alone, pause_ends_when_copies_take_half_of_their_memory);
    tcase_add_test(alone, no_pause_where_rows_change_faster_than_it_spares);
    tcase_add_loop_test(alone, pauses_leave_time_before_the_next_snapshot, 0, 2);
    tcase_add_test(alone, snapshot_that_others_wait_for_does_not_pause);
    tcase_add_test(alone, pauses_leave_the_disk_to_others);
    tcase_add_test(alone, no_pause_of_the_disk_where_nothing_changes);
    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, snapshot_pauses_beside_training_alone);
    suite_add_tcase(suite, alone);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
