/* Models, storages and update rules of one's own.
 *
 * A program registers them before it makes an engine; table specs then take their names as they
 * take the built-in ones. All nodes of a run must have registered the same: names and traits are
 * compared when the nodes meet, and a node that differs is refused.
 *
 * A plug-in file is a shared object that registers what it holds in rubato_plugin_register. The
 * option --plugin FILE of the programs, and of rubato_engine_new_from_args, loads one. It is
 * compiled like this:
 *
 *     cc -O2 -shared -fPIC -o quorum.so quorum.c $(pkg-config --cflags --libs rubato)
 *
 * Errors: RUBATO_ERROR_INVALID where a member is missing or does not make sense, where the name is
 * taken or not one (1 to 31 of a-z, 0-9, _ and -), where there are 64 of a kind already, or while
 * the process has an engine.
 *
 * Threads: any. */
#ifndef RUBATO_PLUGIN_H
#define RUBATO_PLUGIN_H

#include <rubato/model_ops.h>
#include <rubato/storage_ops.h>
#include <rubato/update_ops.h>

/* Marks what a plug-in file exports. */
#define RUBATO_PLUGIN RUBATO_API

G_BEGIN_DECLS

/* Registers what the ops describe under their name. The ops must stay as they are until the process
 * ends. To register the same ops once more changes nothing. */
RUBATO_API bool rubato_register_model(const RubatoModelOps *ops, GError **error);
RUBATO_API bool rubato_register_storage(const RubatoStorageOps *ops, GError **error);
RUBATO_API bool rubato_register_update_rule(const RubatoUpdateOps *ops, GError **error);

/* The name of model, storage or update rule number i: first the built-in ones, then the registered
 * ones in their order. NULL past the last. (transfer none) */
RUBATO_API const char *rubato_model_name(size_t i);
RUBATO_API const char *rubato_storage_name(size_t i);
RUBATO_API const char *rubato_update_rule_name(size_t i);

/* What is special about the update rule of that name ("add" for NULL); NULL where there is none.
 * (transfer none) */
RUBATO_API const RubatoUpdateTraits *rubato_update_rule_traits(const char *update);

/* Loads a plug-in file, which stays loaded until the process ends, and calls its
 * rubato_plugin_register. A path without a slash that is not in the present folder is searched for
 * as dlopen(3) does. Errors: RUBATO_ERROR_NOT_FOUND where it cannot be loaded or is no plug-in, and
 * those of its rubato_plugin_register, after the file's name. For programs that use the shared
 * library: a program with a static Rubato of its own registers by itself. */
RUBATO_API bool rubato_load_plugin(const char *path, GError **error);

/* What a plug-in file defines, not the library: registers all that it holds. */
RUBATO_PLUGIN bool rubato_plugin_register(GError **error);

G_END_DECLS

#endif
