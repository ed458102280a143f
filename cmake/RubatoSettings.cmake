# What every target shares: the language, dependencies, warnings, sanitizers.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")

set(RUBATO_BIN_DIR ${PROJECT_BINARY_DIR}/bin)
set(RUBATO_LIB_DIR ${PROJECT_BINARY_DIR}/lib)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

# Many programs are linked in the builds that sanitizers are for, and with LLD in a third of the time. As
# many as there are processors are linked at a time, so each has one thread.
find_program(LLD ld.lld)
mark_as_advanced(LLD)
if(LLD AND RUBATO_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
    add_link_options(-fuse-ld=lld LINKER:--threads=1)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# What pkg-config says as "-isystem DIRECTORY" CMake takes for a directory when it has asked, and for
# an option when it remembers the answer: a second run of CMake would have all that is compiled with
# it compiled anew.
function(rubato_tell_directories package)
    get_target_property(options ${package} INTERFACE_COMPILE_OPTIONS)
    if(NOT options)
        return()
    endif()
    list(FIND options -isystem place)
    while(NOT place EQUAL -1)
        list(REMOVE_AT options ${place})
        list(GET options ${place} directory)
        list(REMOVE_AT options ${place})
        target_include_directories(${package} INTERFACE ${directory})
        list(FIND options -isystem place)
    endwhile()
    set_target_properties(${package} PROPERTIES INTERFACE_COMPILE_OPTIONS "${options}")
endfunction()

pkg_check_modules(GLIB REQUIRED IMPORTED_TARGET glib-2.0>=2.68)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq>=4.3)
rubato_tell_directories(PkgConfig::ZMQ)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium>=1.0.18)
pkg_check_modules(LIBCONFIG REQUIRED IMPORTED_TARGET libconfig>=1.5)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd>=1.4)
pkg_check_modules(XXHASH REQUIRED libxxhash>=0.8)
pkg_check_modules(JSON_GLIB REQUIRED IMPORTED_TARGET json-glib-1.0)

# Encrypts several times as fast as libsodium does. Only the header and the library tell that it is
# there; it is written for x86-64 alone.
find_path(RUBATO_IPSEC_MB_INCLUDE intel-ipsec-mb.h)
find_library(RUBATO_IPSEC_MB_LIBRARY IPSec_MB)
mark_as_advanced(RUBATO_IPSEC_MB_INCLUDE RUBATO_IPSEC_MB_LIBRARY)
add_library(rubato_aes INTERFACE)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND RUBATO_IPSEC_MB_INCLUDE AND
        RUBATO_IPSEC_MB_LIBRARY)
    target_compile_definitions(rubato_aes INTERFACE RUBATO_HAS_IPSEC_MB)
    target_include_directories(rubato_aes SYSTEM INTERFACE ${RUBATO_IPSEC_MB_INCLUDE})
    target_link_libraries(rubato_aes INTERFACE ${RUBATO_IPSEC_MB_LIBRARY})
    set(RUBATO_AES_LIBRARY IPSec_MB)
    set(RUBATO_AES_FLAG " -lIPSec_MB")
else()
    message(STATUS "No libIPSec_MB: encryption is slower")
endif()

# Tells a process that mpirun of Open MPI has started where the first one runs. The header alone: the
# library is loaded by the processes that ask it.
pkg_check_modules(PMIX QUIET pmix>=3)
add_library(rubato_pmix INTERFACE)
if(PMIX_FOUND)
    target_compile_definitions(rubato_pmix INTERFACE RUBATO_HAS_PMIX)
    target_include_directories(rubato_pmix SYSTEM INTERFACE ${PMIX_INCLUDE_DIRS})
else()
    message(STATUS "No libpmix: mpirun of Open MPI starts nodes on one host alone")
endif()

# Snapshots in S3. The header alone: the library is loaded by the processes that use it.
pkg_check_modules(CURL QUIET libcurl>=7.86)
add_library(rubato_curl INTERFACE)
if(CURL_FOUND)
    target_compile_definitions(rubato_curl INTERFACE RUBATO_HAS_CURL)
    target_include_directories(rubato_curl SYSTEM INTERFACE ${CURL_INCLUDE_DIRS})
else()
    message(STATUS "No libcurl: snapshots cannot be in S3")
endif()

# Packets over networks for RDMA. The headers alone: the library is loaded by the nodes that use it.
pkg_check_modules(UCX QUIET ucx>=1.12)
add_library(rubato_ucx INTERFACE)
if(UCX_FOUND)
    target_compile_definitions(rubato_ucx INTERFACE RUBATO_HAS_UCX)
    target_include_directories(rubato_ucx SYSTEM INTERFACE ${UCX_INCLUDE_DIRS})
else()
    message(STATUS "No libucx: there is no transport \"ucx\"")
    set(RUBATO_UCX_WITHOUT net/transport/ucx)
endif()

# Carries messages of collectives over the network of a site's MPI. The headers alone: the library is
# loaded by the nodes that use it. They are Open MPI's, because each MPI has a binary interface of its
# own.
pkg_check_modules(OPEN_MPI QUIET ompi-c>=4)
add_library(rubato_mpi INTERFACE)
if(OPEN_MPI_FOUND)
    target_compile_definitions(rubato_mpi INTERFACE RUBATO_HAS_MPI)
    target_include_directories(rubato_mpi SYSTEM INTERFACE ${OPEN_MPI_INCLUDE_DIRS})
else()
    message(STATUS "No Open MPI: there is no backend \"mpi\" of collectives")
    set(RUBATO_MPI_WITHOUT collectives/backend/mpi)
endif()

# Answers the probes of Kubernetes, and, as JSON, `rubato status`.
pkg_check_modules(MICROHTTPD QUIET IMPORTED_TARGET libmicrohttpd>=0.9.71)
add_library(rubato_microhttpd INTERFACE)
if(MICROHTTPD_FOUND)
    target_compile_definitions(rubato_microhttpd INTERFACE RUBATO_HAS_MICROHTTPD)
    target_link_libraries(rubato_microhttpd INTERFACE PkgConfig::MICROHTTPD PkgConfig::JSON_GLIB)
    set(RUBATO_HTTP_LIBRARY "microhttpd;json-glib-1.0")
    set(RUBATO_HTTP_FLAG " -lmicrohttpd -ljson-glib-1.0")
else()
    message(STATUS "No libmicrohttpd: nodes do not answer probes and \`rubato status\` over HTTP")
endif()

# Binds threads to cores, and memory to NUMA nodes.
pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc>=2.1)
add_library(rubato_hwloc INTERFACE)
if(HWLOC_FOUND)
    target_compile_definitions(rubato_hwloc INTERFACE RUBATO_HAS_HWLOC)
    target_link_libraries(rubato_hwloc INTERFACE PkgConfig::HWLOC)
    set(RUBATO_HWLOC_LIBRARY hwloc)
    set(RUBATO_HWLOC_FLAG " -lhwloc")
else()
    message(STATUS "No libhwloc: threads are not bound to cores")
endif()

# Multiplies the matrices of rubato-mlp and rubato-wide-deep.
pkg_check_modules(OPENBLAS QUIET IMPORTED_TARGET openblas>=0.3)
add_library(rubato_openblas INTERFACE)
if(OPENBLAS_FOUND)
    target_compile_definitions(rubato_openblas INTERFACE RUBATO_HAS_OPENBLAS)
    target_link_libraries(rubato_openblas INTERFACE PkgConfig::OPENBLAS)
else()
    message(STATUS "No OpenBLAS: rubato-mlp and rubato-wide-deep are slower")
endif()

if(RUBATO_TESTS)
    pkg_check_modules(CHECK REQUIRED IMPORTED_TARGET check>=0.15)
endif()

add_library(rubato_warnings INTERFACE)
target_compile_options(rubato_warnings INTERFACE
    -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${RUBATO_WERROR}>:-Werror>)

add_library(rubato_sanitizers INTERFACE)
if(RUBATO_SANITIZE)
    string(REPLACE ";" "," sanitizers "${RUBATO_SANITIZE}")
    target_compile_options(rubato_sanitizers INTERFACE
        -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(rubato_sanitizers INTERFACE -fsanitize=${sanitizers})
endif()
if(RUBATO_FUZZ)
    target_compile_options(rubato_sanitizers INTERFACE -fsanitize=fuzzer-no-link)
endif()

# What the library alone is compiled with: its lines are counted, those of programs and tests not.
# Threads count the same lines without atomic counters: some runs of a line are lost, but never all.
add_library(rubato_counters INTERFACE)
if(RUBATO_COVERAGE)
    target_compile_options(rubato_counters INTERFACE -fprofile-instr-generate -fcoverage-mapping)
    target_link_options(rubato_sanitizers INTERFACE -fprofile-instr-generate)
endif()

# What each of our own sources is compiled with. Includes are written from the project's root.
add_library(rubato_settings INTERFACE)
target_include_directories(rubato_settings INTERFACE
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(rubato_settings INTERFACE
    _GNU_SOURCE= RUBATO_VERSION="${PROJECT_VERSION}" G_LOG_DOMAIN="rubato")
target_compile_options(rubato_settings INTERFACE $<$<BOOL:${RUBATO_NATIVE}>:-march=native>)
target_link_libraries(rubato_settings INTERFACE rubato_warnings rubato_sanitizers PkgConfig::GLIB)
