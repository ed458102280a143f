/* Registers a program's own models, storages, update rules, handlers, admissions, expiries and
 * kinds of streams.
 *
 * A program registers them before it makes an engine. Then table specs, calls of handlers, and the
 * URIs of streams may name them like the built-in ones. All nodes of a run must have registered the
 * same: names and traits are compared when the nodes meet, and a node that differs is refused.
 *
 * A plug-in file is a shared object that registers what it holds in rubato_plugin_register. The
 * option --plugin FILE of the programs, and of rubato_engine_new_from_args, loads one; so do the
 * `plugins` of a cluster file. It is compiled like this:
 *
 *     cc -O2 -shared -fPIC -o quorum.so quorum.c $(pkg-config --cflags --libs rubato)
 *
 * Errors: RUBATO_ERROR_INVALID if a member is missing or does not make sense, if the name is taken
 * or is no name (1 to 31 of a-z, 0-9, _ and -), if there are already 64 of a kind, or while the
 * process has an engine.
 *
 * Threads: any. */
#ifndef RUBATO_PLUGIN_H
#define RUBATO_PLUGIN_H

#include <rubato/admission_ops.h>
#include <rubato/expiry_ops.h>
#include <rubato/handler_ops.h>
#include <rubato/model_ops.h>
#include <rubato/storage_ops.h>
#include <rubato/stream_ops.h>
#include <rubato/update_ops.h>

/* Marks the functions that a plug-in file exports. */
#define RUBATO_PLUGIN RUBATO_API

/* The version of all that a plug-in file and the library share: the ops, and what these are given.
 * The name of rubato_plugin_register ends in the same number. So a file that was compiled with the
 * headers of another version is refused. */
#define RUBATO_PLUGIN_VERSION 3
#define rubato_plugin_register rubato_plugin_register_3

G_BEGIN_DECLS

/* Registers the ops under their name. The ops must not change until the process ends. A second
 * registration of the same ops changes nothing. */
RUBATO_API bool rubato_register_model(const RubatoModelOps *ops, GError **error);
RUBATO_API bool rubato_register_storage(const RubatoStorageOps *ops, GError **error);
RUBATO_API bool rubato_register_update_rule(const RubatoUpdateOps *ops, GError **error);
RUBATO_API bool rubato_register_handler(const RubatoHandlerOps *ops, GError **error);
RUBATO_API bool rubato_register_admission(const RubatoAdmissionOps *ops, GError **error);
RUBATO_API bool rubato_register_expiry(const RubatoExpiryOps *ops, GError **error);
RUBATO_API bool rubato_register_stream(const RubatoStreamOps *ops, GError **error);

/* The name of model, storage, update rule, handler, admission, expiry or kind of stream number i,
 * from 0: first the built-in ones, then the registered ones in the order of their registration.
 * NULL past the last. (transfer none) */
RUBATO_API const char *rubato_model_name(size_t i);
RUBATO_API const char *rubato_storage_name(size_t i);
RUBATO_API const char *rubato_update_rule_name(size_t i);
RUBATO_API const char *rubato_handler_name(size_t i);
RUBATO_API const char *rubato_admission_name(size_t i);
RUBATO_API const char *rubato_expiry_name(size_t i);
RUBATO_API const char *rubato_stream_name(size_t i);

/* What is special about the update rule of that name ("add" for NULL); NULL if there is none.
 * (transfer none) */
RUBATO_API const RubatoUpdateTraits *rubato_update_rule_traits(const char *update);

/* Loads a plug-in file and calls its rubato_plugin_register. The file stays loaded until the
 * process ends. A path without a slash is looked for in the current folder first, and then where
 * dlopen(3) looks. Errors: RUBATO_ERROR_NOT_FOUND if it cannot be loaded or is no plug-in;
 * RUBATO_ERROR_MISMATCH if it is of another RUBATO_PLUGIN_VERSION; and those of its
 * rubato_plugin_register, with the file's name before their text. For programs that use the shared
 * library: a program that contains the static library registers by itself. */
RUBATO_API bool rubato_load_plugin(const char *path, GError **error);

/* Loads the `plugins` of a cluster file, as rubato_engine_new does first of all. For a program that
 * names models, storages or rules before it makes an engine. A second time nothing changes. Errors:
 * those of rubato_load_plugin, RUBATO_ERROR_CONFIG and _IO. */
RUBATO_API bool rubato_load_plugins_of(const char *cluster_file, GError **error);

/* A plug-in file defines this function, not the library: it registers everything that the file
 * holds. */
RUBATO_PLUGIN bool rubato_plugin_register(GError **error);

G_END_DECLS

#endif
