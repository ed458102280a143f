/* Handlers that tests register, in one process.
 *
 *   "echo"      tells each part's number, the bytes of its arguments (u64), and the arguments
 *   "fail"      fails on the part that its argument names (u32): "it does not like this part"
 *   "keys"      tells each key, and the first value of its row (i64)
 *   "rows"      tells each key, and its row
 *   "increase"  adds its argument (i64) to the first column of each row, twice as much to the
 *               second, and so on
 *   "loop"      raises own_handler_entered, and runs until own_handler_leave is raised
 *
 * "keys" and "rows" tell the keys of a part in the order of the call.
 *
 * Threads: that of a case; handlers run on servers and workers. */
#ifndef TESTS_SUPPORT_ENGINE_OWN_HANDLERS_H
#define TESTS_SUPPORT_ENGINE_OWN_HANDLERS_H

#include "tests/support/engine/engine_fixture.h"

extern Event own_handler_entered, own_handler_leave;

/* What "echo" and "fail" run, for handlers that are like them. */
bool own_handler_echo(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error);
bool own_handler_fail(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error);

/* Registers all of them: a fixture of cases. */
void own_handlers_register(void);

/* Registers others. */
void register_handlers(const RubatoHandlerOps *ops, size_t n);

#endif
