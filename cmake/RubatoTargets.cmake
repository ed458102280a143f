# How the project's targets are made.

# The headers of GLib and of C, which most sources include, are a third of a compiler's time. They are
# precompiled for the target: in all builds for those of TESTS, and for the others under sanitizers.
# So gcc's build sees that each source of the library and of the programs includes what it needs. A
# target of one file reuses the headers of the target REUSE, which has the same options.
function(rubato_precompile_headers target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "TESTS" "REUSE" "")
    if(NOT arg_TESTS AND NOT RUBATO_SANITIZE)
        return()
    endif()
    if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
        # Without the time in it, so that a compiler cache knows it again.
        target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
    if(arg_REUSE)
        target_precompile_headers(${target} REUSE_FROM ${arg_REUSE})
    else()
        target_precompile_headers(${target} PRIVATE
            <errno.h> <fcntl.h> <glib.h> <glib/gstdio.h> <math.h> <pthread.h> <signal.h> <stdatomic.h>
            <stdbool.h> <stdint.h> <stdio.h> <stdlib.h> <string.h> <unistd.h> ${arg_UNPARSED_ARGUMENTS})
    endif()
endfunction()

# The object library of the present folder: rubato_<folder>, of every .c file below it.
function(rubato_add_folder)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "LINK;WITHOUT")
    get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
    foreach(without IN LISTS arg_WITHOUT)
        list(FILTER sources EXCLUDE REGEX "/${without}/")
    endforeach()
    if(NOT sources)
        message(STATUS "${folder}: no sources yet")
        return()
    endif()
    add_library(rubato_${folder} OBJECT ${sources})
    target_link_libraries(rubato_${folder} PRIVATE rubato_settings rubato_counters Threads::Threads ${arg_LINK})
    rubato_precompile_headers(rubato_${folder})
    set_property(GLOBAL APPEND PROPERTY RUBATO_OBJECT_LIBRARIES rubato_${folder})
endfunction()

# The library from its folders: `rubato`, shared, which exports the public API alone, and
# `rubato_internal`, an archive whose every function a test can reach.
function(rubato_add_library)
    get_property(folders GLOBAL PROPERTY RUBATO_OBJECT_LIBRARIES)
    if(NOT folders)
        return()
    endif()
    foreach(folder IN LISTS folders)
        list(APPEND objects $<TARGET_OBJECTS:${folder}>)
    endforeach()

    add_library(rubato SHARED ${objects})
    set_target_properties(rubato PROPERTIES
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
        LIBRARY_OUTPUT_DIRECTORY ${RUBATO_LIB_DIR})
    if(NOT RUBATO_SANITIZE)
        # What is missing is missed here, not in somebody's program. (A sanitizer's run-time is in
        # the program alone.)
        target_link_options(rubato PRIVATE LINKER:--no-undefined)
    endif()

    add_library(rubato_internal STATIC ${objects})
    set_target_properties(rubato_internal PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${RUBATO_LIB_DIR})

    foreach(library IN ITEMS rubato rubato_internal)
        set_target_properties(${library} PROPERTIES LINKER_LANGUAGE C)
        target_link_libraries(${library} PRIVATE rubato_sanitizers Threads::Threads
            PkgConfig::ZMQ PkgConfig::SODIUM PkgConfig::LIBCONFIG PkgConfig::ZLIB PkgConfig::ZSTD
            rubato_aes rubato_microhttpd rubato_hwloc m)
        target_link_libraries(${library} PUBLIC PkgConfig::GLIB)
    endforeach()
endfunction()

# A program of apps/, linked against the shared library as any outside program is.
function(rubato_add_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE rubato_settings ${arg_LINK} rubato Threads::Threads m)
    rubato_precompile_headers(${name})
    set_target_properties(${name} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${RUBATO_BIN_DIR}
        INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    set_property(GLOBAL APPEND PROPERTY RUBATO_PROGRAMS ${name})
endfunction()
